//! Records which node holds each block of a dirty object.

use shoal_base::encoding::{Malformed, Reader};
use shoal_policy::NodeId;

/// The nodes that hold the blocks of one object, for as long as the lake does not have them. A placement
/// stays the same even when rings turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Each node once.
    nodes: Vec<NodeId>,
    /// For each block, the position of its node in `nodes`.
    places: Vec<u16>,
}

impl Placement {
    /// Places blocks on these nodes, in order. Returns `None` if there are more nodes than can be encoded.
    pub fn new(blocks: impl IntoIterator<Item = NodeId>) -> Option<Self> {
        let (mut nodes, mut places) = (Vec::new(), Vec::new());
        for node in blocks {
            let known = nodes.iter().position(|known| *known == node);
            let place = known.unwrap_or_else(|| {
                nodes.push(node);
                nodes.len() - 1
            });
            places.push(u16::try_from(place).ok()?);
        }
        Some(Self { nodes, places })
    }

    /// The nodes that hold blocks.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The node that holds the block at `index`.
    pub fn holder(&self, index: u32) -> Option<NodeId> {
        let place = *self.places.get(index as usize)?;
        Some(self.nodes[usize::from(place)])
    }

    /// The blocks that `node` holds.
    pub fn held_by(&self, node: NodeId) -> impl Iterator<Item = u32> {
        let place = self.nodes.iter().position(|known| *known == node);
        let places = (0..).zip(&self.places);
        places.filter_map(move |(index, at)| (Some(usize::from(*at)) == place).then_some(index))
    }

    /// Encodes the placement, for a record or another node.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.nodes.len() as u32).to_le_bytes());
        for node in &self.nodes {
            out.extend_from_slice(&node.0.to_le_bytes());
        }
        out.extend_from_slice(&(self.places.len() as u32).to_le_bytes());
        for place in &self.places {
            out.extend_from_slice(&place.to_le_bytes());
        }
    }

    /// Inverse of [`Placement::write`].
    ///
    /// # Errors
    ///
    /// Fails if the bytes end early, or if a block is placed on no node.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (mut nodes, mut places) = (Vec::new(), Vec::new());
        for _ in 0..reader.u32()? {
            nodes.push(NodeId(reader.u64()?));
        }
        for _ in 0..reader.u32()? {
            let place = u16::from_le_bytes(reader.array()?);
            if usize::from(place) >= nodes.len() {
                return Err(Malformed);
            }
            places.push(place);
        }
        Ok(Self { nodes, places })
    }

    /// The number of placed blocks.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::encoding::Reader;
    use shoal_policy::NodeId;

    use super::Placement;

    fn placement() -> Placement {
        Placement::new([7, 8, 7, 9].map(NodeId)).unwrap()
    }

    #[test]
    fn each_block_has_one_holder_and_each_node_its_blocks() {
        let placement = placement();
        assert_eq!(placement.nodes(), [7, 8, 9].map(NodeId));
        assert_eq!(placement.holder(2), Some(NodeId(7)));
        assert_eq!(placement.holder(4), None);
        assert_eq!(placement.held_by(NodeId(7)).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(
            placement.held_by(NodeId(1)).count(),
            0,
            "a node that holds nothing"
        );
    }

    #[test]
    fn a_placement_is_read_as_it_was_written_and_a_place_without_a_node_is_refused() {
        let mut bytes = Vec::new();
        placement().write(&mut bytes);
        assert_eq!(Placement::read(&mut Reader::new(&bytes)), Ok(placement()));
        let last_place = bytes.len() - 2;
        bytes[last_place] = 3;
        assert!(Placement::read(&mut Reader::new(&bytes)).is_err());
    }
}
