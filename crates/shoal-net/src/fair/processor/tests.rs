//! Tasks that take turns at the processor.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::yield_now;

use super::*;

const HOG: Payer = Payer { id: 1, share: 1 };
const LIGHT: Payer = Payer { id: 2, share: 1 };

fn paid_by(payer: Payer) -> Arc<ConnectionPayer> {
    Arc::new(ConnectionPayer::new(payer))
}

#[tokio::test]
async fn a_task_of_one_payer_goes_ahead_of_a_thousand_of_another() {
    let processor = Processor::of_width(1);
    let (hog, light) = (paid_by(HOG), paid_by(LIGHT));
    let (said, mut heard) = mpsc::unbounded_channel();
    let task = |payer: &Arc<ConnectionPayer>| {
        let (payer, said) = (Arc::clone(payer), said.clone());
        processor.share(&Arc::clone(&payer), None, async move {
            for _ in 0..3 {
                said.send(payer.get().id).unwrap();
                yield_now().await;
            }
        })
    };
    let tasks: Vec<_> = (0..1000).map(|_| tokio::spawn(task(&hog))).collect();
    let light = tokio::spawn(task(&light));
    light.await.unwrap();
    let before: Vec<u32> = std::iter::from_fn(|| heard.try_recv().ok()).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let hogs = before.iter().filter(|id| **id == HOG.id).count();
    assert!(
        hogs <= 1010,
        "the light one waited for {hogs} turns of the other, of 3000"
    );
    assert_eq!(processor.state.lock().running, 0);
}

/// Does some work on every poll, is ready again at once, and counts its polls.
async fn always_ready(polls: Arc<AtomicU64>) {
    std::future::poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        let began = clock::instant();
        while clock::instant().saturating_duration_since(began) < Duration::from_micros(50) {}
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    })
    .await;
}

#[tokio::test]
async fn a_socket_that_becomes_ready_is_seen_after_one_turn_of_another_payer() {
    let processor = Processor::of_width(1);
    let polls = Arc::new(AtomicU64::new(0));
    let hogs: Vec<_> = (0..100)
        .map(|_| tokio::spawn(processor.share(&paid_by(HOG), None, always_ready(Arc::clone(&polls)))))
        .collect();
    let (mut near, mut far) = tokio::net::UnixStream::pair().unwrap();
    let sent_at = Arc::new(AtomicU64::new(0));
    let (sent, counted) = (Arc::clone(&sent_at), Arc::clone(&polls));
    let light = tokio::spawn(processor.share(&paid_by(LIGHT), None, async move {
        let mut waited = Vec::new();
        for _ in 0..50 {
            assert_eq!(near.read_u8().await.unwrap(), 1);
            waited.push(counted.load(Ordering::Relaxed) - sent.load(Ordering::Relaxed));
        }
        waited
    }));
    for _ in 0..50 {
        // Long enough for the light task to wait for its socket again.
        tokio::time::sleep(Duration::from_millis(1)).await;
        sent_at.store(polls.load(Ordering::Relaxed), Ordering::Relaxed);
        far.write_u8(1).await.unwrap();
    }
    let mut waited = light.await.unwrap();
    waited.sort_unstable();
    assert!(waited[25] <= 2, "{waited:?}");
    for hog in hogs {
        hog.abort();
    }
}

struct Always(bool);

impl MidRequest for Always {
    fn is_mid_request(&self) -> bool {
        self.0
    }
}

#[tokio::test]
async fn a_task_in_the_middle_of_a_request_goes_ahead_of_a_thousand_that_begin_one() {
    let processor = Processor::of_width(1);
    let payer = paid_by(HOG);
    let begun = Arc::new(AtomicU64::new(0));
    let gate = Arc::new(Semaphore::new(0));
    let share = |is_mid_request, step: u64| {
        let (gate, begun) = (Arc::clone(&gate), Arc::clone(&begun));
        let work = async move {
            let _pass = gate.acquire().await;
            begun.fetch_add(step, Ordering::Relaxed)
        };
        tokio::spawn(processor.share(&payer, Some(Arc::new(Always(is_mid_request))), work))
    };
    let before: Vec<_> = (0..1000).map(|_| share(false, 1)).collect();
    let mid_request = share(true, 0);
    yield_now().await;
    gate.add_permits(2000);
    let first_served = mid_request.await.unwrap();
    assert!(first_served <= 3, "{first_served} went first");
    for task in before {
        task.await.unwrap();
    }
}

#[test]
fn more_tasks_are_with_the_runtime_while_one_payer_is_alone() {
    let processor = Processor::of_width(2);
    let mut state = processor.state.lock();
    let (began, beat) = (state.alternated, Duration::from_millis(60));
    let mut turns_after = |payer: Payer, beats| {
        state.has_run(payer.id, began + beats * beat);
        let mut free = |running| {
            state.running = running;
            state.has_free_turn()
        };
        (0..100).take_while(|running| free(*running)).count()
    };
    assert_eq!(turns_after(HOG, 1), 2);
    assert_eq!(turns_after(HOG, 2), 2, "it came only just now");
    assert_eq!(turns_after(HOG, 3), 2 * ALONE);
    assert_eq!(turns_after(LIGHT, 4), 2);
    assert_eq!(turns_after(HOG, 5), 2);
    assert_eq!(turns_after(HOG, 7), 2 * ALONE);
}

#[tokio::test]
async fn a_task_that_is_dropped_with_its_turn_gives_it_back() {
    let processor = Processor::of_width(1);
    let never = tokio::spawn(processor.share(&paid_by(HOG), None, std::future::pending::<()>()));
    yield_now().await;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = {
        let gate = Arc::clone(&gate);
        async move { drop(gate.acquire().await) }
    };
    let waiting = tokio::spawn(processor.share(&paid_by(HOG), None, waiting));
    yield_now().await;
    // Woken, and aborted before it is polled.
    gate.add_permits(1);
    assert_eq!(processor.state.lock().running, 1);
    waiting.abort();
    never.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let after = tokio::spawn(processor.share(&paid_by(LIGHT), None, async { 7 }));
    assert_eq!(after.await.unwrap(), 7);
    assert_eq!(processor.state.lock().running, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_among_many_threads() {
    let processor = Processor::of_runtime();
    let (to_first, first) = mpsc::channel::<u32>(1);
    let mut receiver = first;
    let mut tasks = Vec::new();
    for id in 0..50 {
        let (sender, next) = mpsc::channel(1);
        let mut from = std::mem::replace(&mut receiver, next);
        let payer = paid_by(Payer { id: id % 5, share: 1 });
        tasks.push(tokio::spawn(processor.share(&payer, None, async move {
            while let Some(number) = from.recv().await {
                sender.send(number + 1).await.unwrap();
            }
        })));
    }
    let sending = tokio::spawn(async move {
        for number in 0..2000 {
            to_first.send(number).await.unwrap();
        }
    });
    for number in 0..2000 {
        assert_eq!(receiver.recv().await, Some(number + 50));
    }
    sending.await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let state = processor.state.lock();
    assert_eq!((state.running, state.ready.len()), (0, 0));
}
