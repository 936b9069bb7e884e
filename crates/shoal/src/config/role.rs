//! What a process is for, and which sections it therefore reads. One file can describe a machine that runs both.

/// What a process is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// `shoal serve`
    #[default]
    Node,
    /// `shoal dev`, which gives its nodes identities and seeds of its own
    Dev,
    /// `shoal lookup`
    Lookup,
}

impl Role {
    /// Whether settings of this section say anything to it. The others must be well written, but nobody holds them against the world.
    pub(crate) fn reads(self, section: &str) -> bool {
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
