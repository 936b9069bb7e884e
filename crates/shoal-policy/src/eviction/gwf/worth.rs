//! How uses add worth, and how the age enters it.

use std::cmp::Ordering;

use super::Weight;

/// How much a use adds to the weight of a block, and how the age enters. `docs/explanation/gwf.md` compares
/// the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ageing {
    /// A use adds 1, and the age at the last use on this node is added once, as in LFUDA. The weight is a
    /// number of uses and may move between nodes; the age stays with the copy.
    Added,
    /// A use adds the age (Algorithm 3, lines 9–24). Weights grow geometrically.
    #[default]
    Compounded,
}

impl Ageing {
    /// The weight that one use adds, local or global, when the age is `age`.
    #[must_use]
    pub fn use_weight(self, age: Weight) -> Weight {
        match self {
            Self::Added => Weight::from(1),
            Self::Compounded => age,
        }
    }

    /// The worth of a block of `weight` that is used, or arrives, when the age is `age`.
    #[must_use]
    pub const fn worth(self, weight: Weight, age: Weight) -> Worth {
        match self {
            Self::Added => Worth { weight, since: age },
            Self::Compounded => Worth {
                weight,
                since: Weight::ZERO,
            },
        }
    }
}

/// The worth of a copy of a block on its node. Ordered by rank, then by weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Worth {
    /// The weight that uses added to it. It can move to other nodes.
    pub weight: Weight,
    /// The age added to the weight.
    pub since: Weight,
}

impl Worth {
    /// The number by which blocks are compared, also across nodes; the rank of a victim becomes the age.
    #[must_use]
    pub fn rank(self) -> Weight {
        self.weight + self.since
    }

    /// The same worth with `weight` added.
    #[must_use]
    pub fn with(self, weight: Weight) -> Self {
        Self {
            weight: self.weight + weight,
            ..self
        }
    }
}

impl Ord for Worth {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.rank(), self.weight, self.since).cmp(&(other.rank(), other.weight, other.since))
    }
}

impl PartialOrd for Worth {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ageing, Weight, Worth};

    fn worth(ageing: Ageing, weight: u64, age: u64) -> Worth {
        ageing.worth(Weight::from(weight), Weight::from(age))
    }

    #[test]
    fn the_age_counts_once_or_at_every_use() {
        let age = Weight::from(10);
        assert_eq!(Ageing::Added.use_weight(age), Weight::from(1));
        assert_eq!(worth(Ageing::Added, 3, 10).rank(), Weight::from(13));
        assert_eq!(Ageing::Compounded.use_weight(age), age);
        assert_eq!(worth(Ageing::Compounded, 30, 10).rank(), Weight::from(30));
    }

    #[test]
    fn an_unused_copy_ranks_by_its_age_if_ages_are_added_and_with_nothing_if_not() {
        assert_eq!(worth(Ageing::Added, 0, 9).rank(), Weight::from(9));
        assert_eq!(
            worth(Ageing::Added, 0, 9).with(Weight::from(2)).rank(),
            Weight::from(11)
        );
        assert_eq!(worth(Ageing::Compounded, 0, 9).rank(), Weight::ZERO);
    }

    #[test]
    fn of_equal_ranks_the_less_used_is_less() {
        assert!(worth(Ageing::Added, 2, 5) < worth(Ageing::Added, 4, 3));
    }
}
