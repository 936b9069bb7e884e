//! Max-min fair shares of a link.

/// The max-min fair share of `capacity` for each of `wants`. No share exceeds its want, and no other share
/// exceeds one that is below its want (Bertsekas and Gallager, *Data Networks*, 6.5.2).
pub(super) fn max_min(wants: &[f64], capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_unstable_by(|&a, &b| wants[a].total_cmp(&wants[b]));
    let mut shares = vec![0.0; wants.len()];
    let mut left = capacity.max(0.0);
    for (position, &one) in order.iter().enumerate() {
        let equal = left / (wants.len() - position) as f64;
        shares[one] = wants[one].min(equal);
        left -= shares[one];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::max_min;

    #[test]
    fn small_wishes_are_met_and_the_others_are_equal() {
        assert_eq!(max_min(&[5.0, 1.0, 4.0], 7.0), [3.0, 1.0, 3.0]);
        assert_eq!(max_min(&[1.0, 2.0], 7.0), [1.0, 2.0]);
        assert_eq!(max_min(&[1.0, 2.0], 0.0), [0.0, 0.0]);
        assert!(max_min(&[], 7.0).is_empty());
    }
}
