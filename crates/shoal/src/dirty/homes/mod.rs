//! Dirty objects on the disks of nodes: the home of a name orders what is done to it, other nodes ask that node.

pub(in crate::dirty) mod ahead;
pub(in crate::dirty) mod desk;
pub(in crate::dirty) mod directory;
pub(in crate::dirty) mod drain;
pub(in crate::dirty) mod flushing;
pub(in crate::dirty) mod held;
pub(in crate::dirty) mod home;
pub(in crate::dirty) mod intake;
pub(in crate::dirty) mod messenger;
pub(in crate::dirty) mod page;
pub(in crate::dirty) mod records;
pub(in crate::dirty) mod request;
pub(in crate::dirty) mod settling;
pub(in crate::dirty) mod target;
pub(in crate::dirty) mod uploads;
pub(in crate::dirty) mod view;
