//! Members of etcd that are killed and frozen.

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::Cluster;

impl Cluster {
    pub(crate) fn kill(&self, member: usize) {
        self.signal(member, Signal::KILL);
    }

    pub(crate) fn freeze(&self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    pub(crate) fn thaw(&self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    /// Starts a member that was killed. Its first shell stays for the sake of the folder.
    pub(crate) fn restart(&self, member: usize) {
        std::fs::remove_file(self.process_file(member)).unwrap();
        let keeper = self.run(member);
        let mut keepers = self.keepers.lock().unwrap();
        let before = std::mem::replace(&mut keepers[member], keeper);
        std::mem::forget(before);
    }

    fn signal(&self, member: usize, signal: Signal) {
        let process = std::fs::read_to_string(self.process_file(member)).unwrap();
        let process = Pid::from_raw(process.trim().parse().unwrap()).unwrap();
        kill_process(process, signal).unwrap();
    }
}
