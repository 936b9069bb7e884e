//! `shoal top`: the current state of a cluster, refreshed every second.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use shoal_base::terminal::{self, table};
use shoal_net::clock;
use tokio::sync::mpsc;

use super::admin::{AdminPort, failed};
use super::overview::{NodeView, Overview, Traffic};
use super::status::{remarks, rows, summary};
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::servers::signals::Signals;

/// Interval at which the command polls the nodes.
const REFRESH: Duration = Duration::from_secs(1);

/// Show a cluster in the terminal, with rates per second, refreshed each second
///
/// Press q or Ctrl-C to leave.
#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    admin: AdminPort,
}

/// The terminal in full-screen mode; restored on drop.
struct Screen {
    before: Termios,
}

/// The counts at the previous poll.
#[derive(Default)]
struct Before {
    asked: Option<Instant>,
    nodes: HashMap<String, Traffic>,
}

impl Top {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            let hint = "`shoal status` prints the cluster once, `shoal status --json` for programs";
            return Err(Failure::misused("`shoal top` needs a terminal", hint));
        }
        block_on(self.show())
    }

    async fn show(self) -> Result<(), Failure> {
        let mut stop = Signals::listen()?;
        let client = self.admin.client()?;
        let asked = Overview::ask(&client).await;
        let mut overview = asked.map_err(failed("the cluster cannot be shown"))?;
        let _screen = Screen::open().map_err(|error| Failure::new("the terminal cannot be used", &error))?;
        let mut keys = keys();
        let mut before = Before::default();
        let mut trouble = None;
        loop {
            let rates = before.rates(&overview, clock::instant());
            draw(&frame(&overview, &rates, trouble.as_deref()));
            tokio::select! {
                () = tokio::time::sleep(REFRESH) => {}
                () = stop.stop_with_terminal() => return Ok(()),
                key = keys.recv() => match key {
                    Some(b'q' | b'Q') | None => return Ok(()),
                    Some(_) => continue,
                },
            }
            // On failure the previous overview stays on the screen.
            match Overview::ask(&client).await {
                Ok(asked) => (overview, trouble) = (asked, None),
                Err(error) => trouble = Some(error.to_string()),
            }
        }
    }
}

impl Before {
    /// Returns the rate of each node per second since the previous poll, omitting nodes without earlier
    /// counts, and stores the current counts.
    fn rates(&mut self, overview: &Overview, now: Instant) -> HashMap<String, Traffic> {
        let elapsed = self.asked.map(|asked| now.saturating_duration_since(asked));
        let elapsed = elapsed.filter(|elapsed| !elapsed.is_zero());
        let rate = |node: &NodeView| {
            let traffic = node.numbers()?.traffic;
            let before = self.nodes.get(&node.name)?;
            Some((node.name.clone(), traffic.since(*before).per(elapsed?)))
        };
        let rates = overview.nodes.iter().filter_map(rate).collect();
        let counted = |node: &NodeView| Some((node.name.clone(), node.numbers()?.traffic));
        self.nodes.extend(overview.nodes.iter().filter_map(counted));
        self.asked = Some(now);
        rates
    }
}

/// Formats one screen, of any length.
fn frame(overview: &Overview, rates: &HashMap<String, Traffic>, trouble: Option<&str>) -> String {
    let all = rates.values().copied().fold(Traffic::default(), Traffic::plus);
    let rate = |name: &str, _| {
        if name.is_empty() {
            all
        } else {
            rates.get(name).copied().unwrap_or_default()
        }
    };
    let mut text = summary(overview);
    text += "bytes and requests of the last second; q leaves\n\n";
    text += &table(rows(overview, rate));
    text.push('\n');
    text.extend(overview.nodes.iter().map(remarks));
    if let Some(trouble) = trouble {
        let _ = writeln!(text, "the last answer is shown: {trouble}");
    }
    text
}

/// Cuts a text to the size of the window.
fn fit(text: &str, columns: usize, lines: usize) -> String {
    let text = terminal::lines(text);
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    // Each line clears the rest of the previous one.
    let shown = text.lines().take(lines).map(|line| cut(line) + "\x1b[K");
    shown.collect::<Vec<_>>().join("\r\n")
}

impl Screen {
    fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut keys = before.clone();
        // Read keys one by one, without echo; Ctrl-C still sends a signal.
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        write("\x1b[?1049h\x1b[?25l");
        Ok(Self { before })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write("\x1b[?25h\x1b[?1049l");
        // Fails only if the terminal has gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn draw(text: &str) {
    let size = tcgetwinsize(io::stdout()).ok();
    // A terminal that does not know its size reports 0.
    let known = |size: u16, usual: usize| if size == 0 { usual } else { usize::from(size) };
    let (columns, lines) = size.map_or((80, 24), |size| (known(size.ws_col, 80), known(size.ws_row, 24)));
    write(&format!("\x1b[H{}\x1b[J", fit(text, columns, lines)));
}

fn write(text: &str) {
    let mut stdout = io::stdout().lock();
    // Fails only if the terminal has gone.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Returns a receiver of pressed keys. The thread that reads them ends with the process.
fn keys() -> mpsc::Receiver<u8> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut key = [0];
        while matches!(stdin.read(&mut key), Ok(1)) && sender.blocking_send(key[0]).is_ok() {}
    });
    keys
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_net::clock;

    use super::super::status::tests::overview;
    use super::{Before, Traffic, fit, frame};

    #[test]
    fn rates_are_what_was_counted_since_the_last_look() {
        let (mut before, now) = (Before::default(), clock::instant());
        let counted = |lake_requests| {
            overview(Traffic {
                lake_requests,
                ..Traffic::default()
            })
        };
        assert!(
            before.rates(&counted(10), now).is_empty(),
            "nothing was counted before"
        );
        let rates = before.rates(&counted(30), now + Duration::from_secs(2));
        assert_eq!(rates["n0"].lake_requests, 10);
        assert!(!rates.contains_key("n1"), "it does not answer");
    }

    #[test]
    fn a_screen_tells_rates_and_what_went_wrong() {
        let overview = overview(Traffic {
            local_bytes: 5 << 20,
            ..Traffic::default()
        });
        let rate = Traffic {
            local_bytes: 1 << 20,
            ..Traffic::default()
        };
        let text = frame(&overview, &[("n0".into(), rate)].into(), Some("no node is there"));
        assert!(
            text.contains("100.0%") && text.contains("1.0 MiB  0 B in 0"),
            "{text}"
        );
        assert!(
            text.ends_with("the last answer is shown: no node is there\n"),
            "{text}"
        );
    }

    #[test]
    fn text_that_does_not_fit_into_the_window_is_cut() {
        assert_eq!(fit("äbcd\nef\ngh\n", 3, 2), "äbc\x1b[K\r\nef\x1b[K");
        assert_eq!(fit("a\u{9b}2J\n", 80, 2), "a\\u009b2J\x1b[K");
    }
}
