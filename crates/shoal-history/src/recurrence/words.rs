//! Describes schedules and inputs to people.

use std::fmt;

use shoal_base::forecast::Extent;

use super::inputs::{InputModel, Offset, Place, RangeBegin};
use super::schedule::{Rhythm, Schedule, Slot};
use crate::moment::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, WEEK_MS};
use crate::path::Paths;

/// Maximum number of times of a period that are listed; more are counted.
const TIMES_MAX: usize = 4;

/// 1970-01-01 was a Thursday.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rhythm == Rhythm::LastRun {
            return write!(f, "{} after its last run", duration(self.period_ms));
        }
        let times: Vec<String> = self.slots.iter().map(|slot| self.time_of(slot)).collect();
        let listed = match times.len() {
            0..=TIMES_MAX => times.join(", "),
            count => format!("{count} times"),
        };
        match self.period_ms {
            WEEK_MS if self.is_one_time_on_some_days() => {
                let mut days: Vec<_> = self
                    .slots
                    .iter()
                    .map(|slot| (weekday(slot.phase_ms), day_of(slot)))
                    .collect();
                days.sort_unstable();
                let names: Vec<_> = days.into_iter().map(|(_, name)| name).collect();
                write!(f, "{} at {}", names.join(" "), clock(self.slots[0].phase_ms))
            }
            WEEK_MS => write!(f, "weekly, {listed}"),
            DAY_MS => write!(f, "daily at {listed}"),
            HOUR_MS => write!(f, "hourly at {listed}"),
            period_ms if period_ms > WEEK_MS => write!(f, "every {}, {listed}", duration(period_ms)),
            period_ms if times.len() == 1 => write!(f, "every {}", duration(period_ms)),
            period_ms => write!(f, "{listed} in {}", duration(period_ms)),
        }
    }
}

impl Schedule {
    /// Returns true if all slots of a week are at the same time of day, within ten minutes.
    fn is_one_time_on_some_days(&self) -> bool {
        let first_ms = self.slots[0].phase_ms.rem_euclid(DAY_MS);
        let near = |slot: &Slot| (slot.phase_ms.rem_euclid(DAY_MS) - first_ms).abs() <= 10 * MINUTE_MS;
        self.slots.iter().all(near)
    }

    fn time_of(&self, slot: &Slot) -> String {
        match self.period_ms {
            HOUR_MS => format!(":{:02}", slot.phase_ms / MINUTE_MS),
            DAY_MS => clock(slot.phase_ms),
            WEEK_MS => format!("{} {}", day_of(slot), clock(slot.phase_ms)),
            period_ms if period_ms > DAY_MS => clock(slot.phase_ms),
            _ => duration(slot.phase_ms),
        }
    }
}

/// Returns the name of a slot's day.
fn day_of(slot: &Slot) -> &'static str {
    DAYS[usize::try_from(slot.phase_ms / DAY_MS).unwrap_or(0) % DAYS.len()]
}

/// Returns the day of the week of a phase, from Monday.
fn weekday(phase_ms: i64) -> i64 {
    (phase_ms / DAY_MS + 3) % 7
}

/// Formats the time of day: `02:00`.
fn clock(phase_ms: i64) -> String {
    let minutes = phase_ms.rem_euclid(DAY_MS) / MINUTE_MS;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Formats a length of time: `47 min`, `2 d`, `1.5 h`.
pub(crate) fn duration(ms: i64) -> String {
    let units = [
        (DAY_MS, "d"),
        (HOUR_MS, "h"),
        (MINUTE_MS, "min"),
        (SECOND_MS, "s"),
    ];
    let (unit_ms, name) = units
        .into_iter()
        .find(|(unit_ms, _)| ms.abs() >= *unit_ms)
        .unwrap_or((1, "ms"));
    let tenths = (ms as f64 / unit_ms as f64 * 10.0).round() / 10.0;
    format!("{tenths} {name}")
}

/// Returns the words before a path of which a part is read.
pub(crate) fn some_of(extent: Extent) -> &'static str {
    if extent == Extent::PartOfPrefix {
        "some of "
    } else {
        ""
    }
}

/// Describes the input.
pub(crate) fn input(model: &InputModel, paths: &Paths) -> String {
    let some = some_of(model.extent);
    match model.place {
        Place::Fixed(path) => format!("{some}{}", paths.text(path)),
        Place::Dated { shape, offsets } => {
            let phrases: Vec<_> = offsets.into_iter().flatten().map(relative).collect();
            format!(
                "{some}{}: {}",
                crate::path::readable(paths.shape_text(shape)),
                phrases.join(", ")
            )
        }
        Place::Range {
            shape,
            grain,
            begin,
            last,
        } => {
            let begin = match begin {
                RangeBegin::At(count) => grain.begin(count).to_minute(),
                RangeBegin::Month => "the first of the month".to_owned(),
            };
            let last = relative(Offset { grain, units: last });
            format!(
                "{}: from {begin} to {last}",
                crate::path::readable(paths.shape_text(shape))
            )
        }
    }
}

fn relative(Offset { grain, units }: Offset) -> String {
    let unit = grain.as_str();
    match units {
        0 => format!("the {unit} of the run"),
        -1 => format!("the {unit} before"),
        1 => format!("the {unit} after"),
        _ if units < 0 => format!("{} {unit}s before", -units),
        _ => format!("{units} {unit}s after"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Rhythm, Schedule, Slot, duration};
    use crate::moment::{DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS};

    fn shown(rhythm: Rhythm, period_ms: i64, phases_ms: &[i64]) -> String {
        let slot = |&phase_ms: &i64| Slot {
            phase_ms,
            early_ms: 0,
            late_ms: 0,
            probability: 1.0,
            hits: Vec::new(),
        };
        Schedule {
            rhythm,
            period_ms,
            slots: phases_ms.iter().map(slot).collect(),
        }
        .to_string()
    }

    #[test]
    fn schedules_are_told_as_people_say_them() {
        let monday_ms = 4 * DAY_MS;
        for (expected, period_ms, phases_ms) in [
            ("daily at 02:03", DAY_MS, vec![2 * HOUR_MS + 3 * MINUTE_MS]),
            ("daily at 02:00, 14:00", DAY_MS, vec![2 * HOUR_MS, 14 * HOUR_MS]),
            ("hourly at :05", HOUR_MS, vec![5 * MINUTE_MS]),
            ("every 15 min", 15 * MINUTE_MS, vec![0]),
            ("every 6 h", 6 * HOUR_MS, vec![HOUR_MS]),
            (
                "Mon Fri at 06:00",
                WEEK_MS,
                vec![DAY_MS + 6 * HOUR_MS, monday_ms + 6 * HOUR_MS],
            ),
            (
                "weekly, Mon 06:00, Tue 18:00",
                WEEK_MS,
                vec![monday_ms + 6 * HOUR_MS, monday_ms + 42 * HOUR_MS],
            ),
        ] {
            assert_eq!(shown(Rhythm::Clock, period_ms, &phases_ms), expected);
        }
        assert_eq!(
            shown(Rhythm::LastRun, 50 * MINUTE_MS, &[0]),
            "50 min after its last run"
        );
    }

    #[test]
    fn lengths_of_time_have_one_unit() {
        for (ms, text) in [
            (0, "0 ms"),
            (1_500, "1.5 s"),
            (47 * MINUTE_MS, "47 min"),
            (36 * HOUR_MS, "1.5 d"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }
}
