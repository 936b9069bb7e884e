//! Max-min fair rates by progressive filling (Bertsekas and Gallager, *Data Networks*, 6.5.2), over classes instead of flows.
//!
//! The rate of all flows rises until a link is full; the flows on it keep the rate they have; the others rise on.

use super::{Class, Link};

/// Gives each class that has flows the rate of one of them, and each link what one more flow would get.
pub(super) fn share<F>(links: &mut [Link], classes: &mut [Class<F>]) {
    let mut free: Vec<_> = links.iter().map(|link| link.bytes_per_second).collect();
    let mut rising: Vec<_> = links.iter().map(|link| link.flows).collect();
    let mut settled: Vec<_> = classes.iter().map(|class| class.flows.is_empty()).collect();
    // The rate at which each link is full; kept, as dividing anew for every link that fills would be most of the work.
    let mut full_at: Vec<_> = (0..links.len())
        .map(|link| full_at(free[link], rising[link]))
        .collect();
    for link in links.iter_mut() {
        link.changes = 0;
    }
    while let Some((fullest, rate)) = fullest(&full_at) {
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
                full_at[link] = self::full_at(free[link], rising[link]);
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

/// The rate at which a link is full when that of all its rising flows rises alike.
fn full_at(free: f64, rising: u32) -> f64 {
    if rising == 0 {
        f64::INFINITY
    } else {
        free / f64::from(rising)
    }
}

/// The link that is full first, and the rate at which it is.
fn fullest(full_at: &[f64]) -> Option<(usize, f64)> {
    let mut first = (0, f64::INFINITY);
    for (link, &rate) in full_at.iter().enumerate() {
        if rate < first.1 {
            first = (link, rate);
        }
    }
    (first.1 < f64::INFINITY).then_some(first)
}
