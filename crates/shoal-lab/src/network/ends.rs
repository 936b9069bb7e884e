//! The time at which the next flow of each class ends, and the earliest of them.
//!
//! Many nodes have tens of thousands of classes, and every event asks for the earliest end. Times are kept in
//! groups that remember their earliest one, so a question costs a look at each group and not at each class.

use shoal_sim::Time;

/// The number of classes in a group.
const GROUP_CLASSES: usize = 256;

/// The end of the next flow of each class; [`Time::NEVER`] if it has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    times: Vec<Time>,
    groups: Vec<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    earliest: Time,
    /// True if the earliest time has become later, so that it has to be looked for again.
    is_stale: bool,
}

impl Ends {
    /// Adds a class without a flow.
    pub(super) fn add(&mut self) {
        if self.times.len().is_multiple_of(GROUP_CLASSES) {
            self.groups.push(Group {
                earliest: Time::NEVER,
                is_stale: false,
            });
        }
        self.times.push(Time::NEVER);
    }

    /// Sets the end of the class at `position`.
    pub(super) fn set(&mut self, position: usize, end: Time) {
        let before = std::mem::replace(&mut self.times[position], end);
        let group = &mut self.groups[position / GROUP_CLASSES];
        if end <= group.earliest {
            group.earliest = end;
            group.is_stale = false;
        } else if before == group.earliest {
            group.is_stale = true;
        }
    }

    /// The earliest end; `None` if no class has a flow.
    pub(super) fn earliest(&mut self) -> Option<Time> {
        for (group, times) in self.groups.iter_mut().zip(self.times.chunks(GROUP_CLASSES)) {
            if group.is_stale {
                group.earliest = times.iter().copied().min().unwrap_or(Time::NEVER);
                group.is_stale = false;
            }
        }
        let earliest = self.groups.iter().map(|group| group.earliest).min()?;
        Some(earliest).filter(|&end| end != Time::NEVER)
    }

    /// The first class that ends at `end`, which is the [`Ends::earliest`].
    pub(super) fn first_at(&self, end: Time) -> Option<usize> {
        let group = self.groups.iter().position(|group| group.earliest == end)?;
        let first = group * GROUP_CLASSES;
        let within = self.times[first..].iter().position(|&time| time == end)?;
        Some(first + within)
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::seeded::Chance;
    use shoal_sim::Time;

    use super::Ends;

    #[test]
    fn the_earliest_end_is_the_one_that_a_look_at_all_classes_finds() {
        let (mut ends, mut chance) = (Ends::default(), Chance::new(1));
        let mut times = Vec::new();
        assert_eq!(ends.earliest(), None);
        for step in 0..20_000 {
            // Classes are added while others have flows, several end at once, and some have none.
            if times.is_empty() || (step % 20 == 0) {
                ends.add();
                times.push(Time::NEVER);
            }
            let position = chance.below(times.len() as u64) as usize;
            let end = match chance.below(100) {
                0..40 => Time::NEVER,
                _ => Time(chance.below(300)),
            };
            ends.set(position, end);
            times[position] = end;
            if chance.happens(0.7) {
                let least = times.iter().copied().min().filter(|&end| end != Time::NEVER);
                assert_eq!(ends.earliest(), least);
                let first = least.map(|end| times.iter().position(|&time| time == end).unwrap());
                assert_eq!(least.and_then(|end| ends.first_at(end)), first);
            }
        }
        assert!(times.len() > 3 * super::GROUP_CLASSES, "{}", times.len());
    }
}
