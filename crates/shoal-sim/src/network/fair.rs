//! Max-min fair rates by progressive filling (Bertsekas and Gallager, *Data Networks*, 6.5.2), over classes instead of flows.
//!
//! The rate of all flows rises until a link is full; the flows on it keep the rate they have; the others rise on.

use super::{Class, Link};

/// Gives each class that has flows the rate of one of them, and each link what one more flow would get.
pub(super) fn share<F>(links: &mut [Link], classes: &mut [Class<F>]) {
    let mut free: Vec<_> = links.iter().map(|link| link.bytes_per_second).collect();
    let mut rising: Vec<_> = links.iter().map(|link| link.flows).collect();
    let mut settled: Vec<_> = classes.iter().map(|class| class.flows.is_empty()).collect();
    for link in links.iter_mut() {
        link.changes = 0;
    }
    while let Some((fullest, rate)) = fullest(&free, &rising) {
        for &position in &links[fullest].classes {
            let position = position as usize;
            if std::mem::replace(&mut settled[position], true) {
                continue;
            }
            let class = &mut classes[position];
            class.rate = rate;
            let flows = class.flows.len() as u32;
            for link in &class.path {
                let link = link.0 as usize;
                rising[link] -= flows;
                free[link] = (free[link] - rate * f64::from(flows)).max(0.0);
            }
        }
        links[fullest].share = rate;
        free[fullest] = f64::INFINITY;
    }
    for (link, free) in links.iter_mut().zip(free) {
        // What is infinite was full, and has its share.
        if free.is_finite() {
            let alone = free <= 0.0;
            link.share = if alone {
                link.bytes_per_second / f64::from(link.flows + 1)
            } else {
                free
            };
        }
    }
}

/// The link that is full first when the rates of all rising flows rise alike, and the rate at which it is.
fn fullest(free: &[f64], rising: &[u32]) -> Option<(usize, f64)> {
    free.iter()
        .zip(rising)
        .enumerate()
        .filter(|(_, (_, rising))| **rising > 0)
        .map(|(link, (free, rising))| (link, free / f64::from(*rising)))
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
}
