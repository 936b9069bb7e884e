//! The role of a process, and the sections that it reads. One file can configure a node and a name server on
//! the same machine.

/// The role of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// `shoal serve`
    #[default]
    Node,
    /// `shoal dev`, which sets the identities and seeds of its nodes itself.
    Dev,
    /// `shoal lookup`
    Lookup,
}

impl Role {
    /// Returns true if this role reads the section. Other sections must be well-formed, but their values are
    /// not validated further.
    pub fn reads(self, section: &str) -> bool {
        match self {
            Self::Node | Self::Dev => section != "lookup",
            Self::Lookup => matches!(section, "lookup" | "log"),
        }
    }

    /// Returns the subcommand.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Node => "serve",
            Self::Dev => "dev",
            Self::Lookup => "lookup",
        }
    }
}
