//! The limit of open files and sockets.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shoal_node::config::Limits;

/// Descriptors of a node besides client connections: its files, and its connections to the lake.
const BESIDES: u64 = 4096;

/// Raises the limit as far as the system permits, and warns if that is too low for the configured
/// connections.
///
/// The initial limit is low for the sake of programs that use `select`; this one does not.
pub(crate) fn raise(limits: &Limits) {
    let granted = getrlimit(Resource::Nofile).maximum;
    let wanted = Rlimit {
        current: granted,
        maximum: granted,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
    let (open, needed) = (
        getrlimit(Resource::Nofile).current,
        limits.connections() as u64 + BESIDES,
    );
    if let Some(open) = open.filter(|&open| open < needed) {
        let hint = "raise the hard limit of open files (LimitNOFILE= of systemd, ulimit -Hn) or lower limits.requests";
        tracing::warn!(
            open,
            needed,
            hint,
            "the limit of open files is too low for the configured limits"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_may_open_as_many_as_the_system_grants() {
        raise(&Limits::default());
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
