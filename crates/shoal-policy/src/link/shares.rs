//! Each node's share of a common bandwidth.

use super::{Demand, whole};

/// Each node always has this fraction of an equal share, which new clients can use before other nodes know of
/// their demand.
const FLOOR_PART: f64 = 0.1;

/// The reservations of all nodes together get at most this fraction of the bandwidth.
const RESERVED_PART_MAX: f64 = 0.8;

/// Divides `bandwidth` among nodes with these demands: max-min fair in each part of the demands, in order of
/// priority. Bandwidth that no node wants is divided equally.
///
/// The shares add up to the bandwidth, up to rounding down. A node's share never falls when its own demand
/// rises, and never rises when another's does.
pub fn shares(bandwidth: u64, demands: &[Demand]) -> Vec<u64> {
    let nodes = demands.len();
    if nodes == 0 {
        return Vec::new();
    }
    let floor = bandwidth as f64 / nodes as f64 * FLOOR_PART;
    let mut shares = vec![floor; nodes];
    // The part of each floor that is not used up by the node's own demand.
    let mut spare = vec![floor; nodes];
    let mut left = bandwidth as f64 * (1.0 - FLOOR_PART);
    for part in 0..Demand::PARTS {
        let wanted: Vec<f64> = demands
            .iter()
            .zip(&mut spare)
            .map(|(demand, spare)| {
                // No node can use more than the whole bandwidth.
                let wanted = demand.0[part].min(bandwidth) as f64;
                let covered = wanted.min(*spare);
                *spare -= covered;
                wanted - covered
            })
            .collect();
        let most = match part {
            Demand::RESERVED => left.min(bandwidth as f64 * RESERVED_PART_MAX),
            _ => left,
        };
        let level = water_level(&wanted, most);
        for (share, wanted) in shares.iter_mut().zip(wanted) {
            let given = wanted.min(level);
            *share += given;
            left -= given;
        }
    }
    let equal = left.max(0.0) / nodes as f64;
    shares.into_iter().map(|share| whole(share + equal)).collect()
}

/// Computes the largest cap such that `room` suffices if every node gets its demand, up to the cap.
fn water_level(wanted: &[f64], room: f64) -> f64 {
    let mut wanted = wanted.to_vec();
    wanted.sort_unstable_by(f64::total_cmp);
    let mut left = room;
    for (place, next) in wanted.iter().enumerate() {
        let nodes = (wanted.len() - place) as f64;
        if next * nodes >= left {
            return (left / nodes).max(0.0);
        }
        left -= next;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Demand, shares};

    const B: u64 = 1_000_000;

    fn client(rate: u64) -> Demand {
        Demand([0, rate, 0, 0, 0])
    }

    fn prefetch(rate: u64) -> Demand {
        Demand([0, 0, 0, rate, 0])
    }

    #[test]
    fn idle_nodes_have_equal_shares() {
        assert_eq!(shares(B, &[Demand::default(); 4]), [B / 4; 4]);
        assert_eq!(shares(B, &[client(B)]), [B]);
        assert!(shares(B, &[]).is_empty());
    }

    #[test]
    fn a_node_gets_what_others_do_not_want() {
        let got = shares(B, &[client(B), Demand::default(), client(100_000)]);
        // The floor of the idle node stays its own.
        assert_eq!(got, [866_666, 33_333, 100_000]);
    }

    #[test]
    fn equal_wants_beyond_the_bandwidth_get_equal_shares() {
        let got = shares(B, &[client(700_000), client(900_000)]);
        assert_eq!(got, [B / 2; 2]);
    }

    #[test]
    fn clients_of_one_node_go_before_the_prefetch_of_another() {
        let got = shares(B, &[prefetch(B), client(600_000)]);
        assert_eq!(got, [400_000, 600_000]);
        let all = shares(B, &[prefetch(B), client(B)]);
        assert_eq!(all, [50_000, 950_000]);
    }

    #[test]
    fn reservations_go_first_and_leave_a_part_to_clients() {
        let reserved = |rate| Demand([rate, 0, 0, 0, 0]);
        assert_eq!(shares(B, &[reserved(600_000), client(B)]), [600_000, 400_000]);
        let got = shares(B, &[reserved(B), client(B)]);
        assert_eq!(got, [850_000, 150_000]);
    }

    #[test]
    fn absurd_demands_get_no_more_than_a_fair_share() {
        let absurd = Demand([u64::MAX; 5]);
        let got = shares(B, &[absurd, client(B), client(B)]);
        assert!(got[1] >= B / 20 && got[1] == got[2], "{got:?}");
        let client_only = shares(B, &[client(u64::MAX), client(B), client(B)]);
        assert_eq!(client_only, [B / 3; 3]);
    }

    fn demand() -> impl Strategy<Value = Demand> {
        let rate = prop_oneof![Just(0), 0..B, 0..3 * B, Just(u64::MAX)];
        [rate.clone(), rate.clone(), rate.clone(), rate.clone(), rate].prop_map(Demand)
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_bandwidth(demands in prop::collection::vec(demand(), 1..20), bandwidth in 1_000_u64..1 << 40) {
            let got = shares(bandwidth, &demands);
            let sum: u64 = got.iter().sum();
            prop_assert!(sum <= bandwidth + 1 && sum + demands.len() as u64 + 1 >= bandwidth, "{sum}");
            let floor = bandwidth as f64 / demands.len() as f64 * 0.1;
            prop_assert!(got.iter().all(|share| *share as f64 >= floor - 1.0));
        }

        /// [`DemandExchange`](crate::link::DemandExchange) relies on this property.
        #[test]
        fn a_share_follows_its_own_demand_and_gives_way_to_others(
            demands in prop::collection::vec(demand(), 2..8),
            which in 0_usize..8,
            more in demand(),
        ) {
            let which = which % demands.len();
            let before = shares(B, &demands);
            let mut raised = demands;
            for (rate, more) in raised[which].0.iter_mut().zip(more.0) {
                *rate = rate.saturating_add(more);
            }
            let after = shares(B, &raised);
            for (node, (before, after)) in before.iter().zip(&after).enumerate() {
                if node == which {
                    prop_assert!(after + 1 >= *before, "{before} fell to {after}");
                } else {
                    prop_assert!(*after <= before + 1, "{before} rose to {after}");
                }
            }
        }
    }
}
