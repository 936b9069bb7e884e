//! Escapes the fields of a text log line, so that it stays one line whatever a client sends.
//!
//! Keys, header values and error texts of the lake are untrusted. A line break in one of them would forge a
//! log line, and an escape sequence would reach the terminal of whoever reads the log.

use std::fmt;

use shoal_base::terminal;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Writes the message unchanged, because only the node writes messages, and escapes every other field.
pub(crate) fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        if field.name() == "message" {
            return write!(writer, "{value:?}");
        }
        let shown = format!("{value:?}");
        write!(writer, "{}={}", field.name(), terminal::line(&shown))
    })
    .delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use shoal_s3::object::ObjectName;
    use tracing_subscriber::fmt::MakeWriter;

    use super::fields;

    /// Collects the output of a logger with these fields.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'log> MakeWriter<'log> for Log {
        type Writer = Self;

        fn make_writer(&'log self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn no_byte_of_a_client_begins_a_line_or_reaches_the_terminal() {
        let log = Log::default();
        let lines = tracing_subscriber::fmt()
            .fmt_fields(fields())
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        let nasty = "a\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\r\u{202e}z";
        let name = ObjectName {
            bucket: "b".into(),
            key: nasty.as_bytes().into(),
            version: Some(nasty.into()),
        };
        let error = io::Error::other(nasty);
        tracing::subscriber::with_default(lines, || {
            tracing::warn!(object = ?name, %error, answer = nasty, shown = %nasty, "not flushed\nhint: wait");
            tracing::warn!(error = &error as &dyn std::error::Error, "once more");
        });
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 3, "two events, and one hint:\n{text}");
        let forbidden = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(forbidden), "{text:?}");
        assert!(
            text.contains("hint: wait") && text.contains(r"s3://b/a\n2026"),
            "{text}"
        );
    }

    #[test]
    fn plain_fields_look_as_they_always_did() {
        let log = Log::default();
        let lines = tracing_subscriber::fmt()
            .fmt_fields(fields())
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(log.clone())
            .finish();
        tracing::subscriber::with_default(lines, || {
            tracing::info!(bucket = "b", bytes = 7_u64, caller = %"ä", "served");
        });
        let text = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(text.trim(), "INFO served bucket=\"b\" bytes=7 caller=ä");
    }
}
