//! Cache augmentation (4.3): keeps bytes that jobs read from the lake for later jobs, in the room that the
//! plan leaves.
//!
//! The linear program ignores demand paging. The *usable* room in slot `t` is `C - Σ C_l,t`; a policy manages
//! it. A job whose file an earlier job has read whole by then reads that part from the cache, so its remote
//! rate falls. Belady's MIN is exact here, as the plan knows the next use of each file; among files of
//! different sizes it is no longer optimal, but good.

use crate::instance::Instance;
use crate::model::Paging;
use crate::schedule::Schedule;

/// A file's remote bytes, kept for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Page {
    /// The file, by its position in the instance.
    pub file: usize,
    /// The slot in which the job that reads them begins. They use room from here on.
    pub from: usize,
    /// The first slot after that job: from here on, others can read them.
    pub readable: usize,
    /// The first slot in which they are no longer cached.
    pub until: usize,
    /// The number of bytes.
    pub bytes: f64,
}

/// A page that is in the cache.
#[derive(Clone, Copy, Debug)]
struct Held {
    page: Page,
    /// A job reads it from the cache until this slot, and it is not evicted before.
    pinned: usize,
    /// The slot at which it will be read next.
    next: Option<usize>,
    is_whole: bool,
}

/// Keeps jobs' reads in the room that `schedule` leaves, and lowers the remote bytes of the jobs that read
/// them again. Returns the pages, in the order in which they leave.
pub fn augment(instance: &Instance, schedule: &mut Schedule, paging: Paging) -> Vec<Page> {
    if paging == Paging::Off {
        return Vec::new();
    }
    let slots = instance.slots.len();
    let mut arriving: Vec<Vec<usize>> = vec![Vec::new(); slots];
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); instance.files.len()];
    for (number, job) in instance.jobs.iter().enumerate() {
        let Some(remote) = &schedule.jobs[number] else {
            continue;
        };
        arriving[job.from].push(number);
        for (&(file, _), &bytes) in job.reads.iter().zip(remote) {
            if bytes > 0.0 {
                uses[file].push(job.from);
            }
        }
    }
    for uses in &mut uses {
        uses.sort_unstable();
    }
    let next_use = |file: usize, slot: usize| {
        let position = uses[file].partition_point(|&at| at < slot);
        uses[file].get(position).copied()
    };
    // Without the pages that must not be evicted.
    let mut room = schedule.cache_left.clone();
    let mut held: Vec<Held> = Vec::new();
    let mut left: Vec<Page> = Vec::new();
    for (slot, arriving) in arriving.iter().enumerate() {
        held.retain_mut(|one| {
            if one.next.is_some_and(|next| next < slot) {
                one.next = next_use(one.page.file, slot);
            }
            let stays = one.next.is_some() || slot < one.pinned;
            if !stays {
                left.push(Page {
                    until: slot,
                    ..one.page
                });
            }
            stays
        });
        for &job in arriving {
            for read in 0..instance.jobs[job].reads.len() {
                let file = instance.jobs[job].reads[read].0;
                let Some(one) = held.iter_mut().find(|one| one.page.file == file) else {
                    let next = next_use(file, instance.jobs[job].until);
                    held.extend(begun(instance, schedule, job, read, next));
                    continue;
                };
                // A page that is still being read cannot be reused, and is not kept twice.
                if one.page.readable <= slot && one.pin(&mut room, slot, instance.jobs[job].until) {
                    schedule.hit(instance, job, read, one.page.bytes);
                }
            }
        }
        let mut used: f64 = held
            .iter()
            .filter(|one| one.pinned <= slot)
            .map(|one| one.page.bytes)
            .sum();
        while used > room[slot] {
            let Some(victim) = victim(paging, &held, slot) else {
                break;
            };
            let one = held.swap_remove(victim);
            used -= one.page.bytes;
            left.push(Page {
                until: slot,
                ..one.page
            });
        }
    }
    left.extend(held.into_iter().map(|one| Page {
        until: slots,
        ..one.page
    }));
    left.retain(|page| page.until > page.readable);
    debug_assert!(
        left.iter().all(|page| page.from < page.readable),
        "a page is read first"
    );
    left
}

impl Held {
    /// Pins the page while a job reads it, if there is room beside the other pinned pages.
    fn pin(&mut self, room: &mut [f64], slot: usize, until: usize) -> bool {
        let more = self.pinned.max(slot)..until.max(self.pinned);
        if more.clone().any(|slot| room[slot] < self.page.bytes) {
            return false;
        }
        room[more].iter_mut().for_each(|room| *room -= self.page.bytes);
        self.pinned = self.pinned.max(until);
        true
    }
}

/// Returns the page of a read that begins, if it is read again.
fn begun(
    instance: &Instance,
    schedule: &Schedule,
    job: usize,
    read: usize,
    next: Option<usize>,
) -> Option<Held> {
    let reader = &instance.jobs[job];
    let (file, bytes) = (reader.reads[read].0, schedule.jobs[job].as_ref()?[read]);
    let page = Page {
        file,
        from: reader.from,
        readable: reader.until,
        until: reader.until,
        bytes,
    };
    let is_whole = bytes >= instance.files[file].bytes * (1.0 - 1e-9);
    (bytes > 0.0 && next.is_some()).then_some(Held {
        page,
        pinned: reader.from,
        next,
        is_whole,
    })
}

/// Returns the page to evict next.
fn victim(paging: Paging, held: &[Held], slot: usize) -> Option<usize> {
    let rank = |one: &Held| match paging {
        Paging::Life => usize::from(!one.is_whole),
        Paging::Belady | Paging::Off => one.next.unwrap_or(usize::MAX),
    };
    let free = held.iter().enumerate().filter(|(_, one)| one.pinned <= slot);
    let chosen = free.max_by(|(_, a), (_, b)| {
        rank(a)
            .cmp(&rank(b))
            .then(a.page.bytes.total_cmp(&b.page.bytes))
            .then(b.page.file.cmp(&a.page.file))
    });
    chosen.map(|(position, _)| position)
}
