//! The role of a process, and the sections that it therefore reads. One file can configure a machine that
//! runs a node and a name server.

/// The role of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// `shoal serve`
    #[default]
    Node,
    /// `shoal dev`, which sets the identities and seeds of its nodes itself
    Dev,
    /// `shoal lookup`
    Lookup,
}

impl Role {
    /// Whether this role reads the section. Other sections must be well-formed, but their values are not
    /// checked further.
    pub fn reads(self, section: &str) -> bool {
        match self {
            Self::Node | Self::Dev => section != "lookup",
            Self::Lookup => matches!(section, "lookup" | "log"),
        }
    }

    /// The verb on the command line.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Node => "serve",
            Self::Dev => "dev",
            Self::Lookup => "lookup",
        }
    }
}
