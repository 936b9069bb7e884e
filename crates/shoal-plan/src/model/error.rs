//! Why a request cannot be planned. Each message is one sentence and a hint.

use thiserror::Error;

/// A request that contradicts itself or makes no sense.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RequestError {
    /// The request has a form of another version.
    #[error(
        "the request has version {found}, and this planner reads version {expected}\nhint: write the request anew with this version of shoal"
    )]
    Version {
        /// The version of the request.
        found: u32,
        /// The version that is read.
        expected: u32,
    },
    /// A number that is not finite.
    #[error("{what} is {value}\nhint: give a finite number")]
    NotFinite {
        /// The thing that has this number.
        what: String,
        /// The number.
        value: f64,
    },
    /// A number below the least that makes sense.
    #[error("{what} is {value}\nhint: give a number greater than 0")]
    NotPositive {
        /// The thing that has this number.
        what: String,
        /// The number.
        value: f64,
    },
    /// A time that lies before the one that it must follow.
    #[error("{what}: {later_name} ({later_s} s) is not after {earlier_name} ({earlier_s} s)\nhint: {hint}")]
    Order {
        /// The thing that has these times.
        what: String,
        /// The name of the time that must come first.
        earlier_name: &'static str,
        /// That time.
        earlier_s: f64,
        /// The name of the time that must come second.
        later_name: &'static str,
        /// That time.
        later_s: f64,
        /// The advice that follows `hint:`.
        hint: &'static str,
    },
    /// A job that is submitted at a time that is not planned.
    #[error(
        "job {job} is submitted at {submit_s} s, outside the window of {start_s} to {end_s} s\nhint: move the window, or leave the job to another one"
    )]
    Outside {
        /// The job.
        job: String,
        /// Its submission.
        submit_s: f64,
        /// The start of the window.
        start_s: f64,
        /// The end of the window.
        end_s: f64,
    },
    /// Two things of one name.
    #[error("two {kind} are named {name}\nhint: give each a name of its own")]
    Twice {
        /// Files or jobs.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A name that is empty.
    #[error("{kind} number {number} has no name\nhint: give each a name of its own")]
    Nameless {
        /// File or job.
        kind: &'static str,
        /// Its position, from 1.
        number: usize,
    },
    /// A file that is not listed.
    #[error(
        "{what} names the file {file}, which is not among the files{nearest}\nhint: list the file with its size, or correct the name"
    )]
    UnknownFile {
        /// The thing that names it.
        what: String,
        /// The unknown name.
        file: String,
        /// ` (nearest: NAME)`, if one is near.
        nearest: String,
    },
    /// A job that names a file twice.
    #[error("job {job} names the file {file} twice\nhint: name each input once; a job reads a file whole")]
    InputTwice {
        /// The job.
        job: String,
        /// The file.
        file: String,
    },
    /// A job that reads nothing.
    #[error(
        "job {job} reads nothing\nhint: list its inputs, or leave it out: there is nothing to plan for it"
    )]
    NoInputs {
        /// The job.
        job: String,
    },
    /// A file of no size.
    #[error("file {file} has no bytes\nhint: leave it out of the inputs: there is nothing to transfer")]
    EmptyFile {
        /// The file.
        file: String,
    },
    /// A file with more cached bytes than its size.
    #[error(
        "the cache holds {held_bytes} bytes of {file}, which has {bytes}\nhint: the file has changed; count old bytes as not cached"
    )]
    HeldTooMuch {
        /// The file.
        file: String,
        /// The bytes of it that the request lists as held.
        held_bytes: u64,
        /// Its size.
        bytes: u64,
    },
    /// More cached bytes than the cache has room for.
    #[error(
        "the cache holds {held_bytes} bytes and has room for {capacity_bytes}\nhint: give the room of all nodes together, or evict before planning"
    )]
    HeldBeyondCapacity {
        /// The bytes of all files that the request lists as held.
        held_bytes: u128,
        /// The room.
        capacity_bytes: u64,
    },
    /// More slots or reads than this planner takes.
    #[error("{what}: {found}, and at most {most} are planned at once\nhint: {hint}")]
    TooMany {
        /// The quantity that exceeds its bound.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The bound.
        most: u64,
        /// The advice that follows `hint:`.
        hint: &'static str,
    },
}
