//! The clock by which calls are broken off: a thread that counts while somebody is in a call, and sleeps otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// How often it counts; a call is broken off at most that much after its deadline.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// After how many ticks without a call it goes to sleep.
const IDLE_TICKS: u32 = 20;

#[derive(Debug)]
struct State {
    /// Calls under way.
    busy: AtomicU32,
    asleep: AtomicBool,
    over: AtomicBool,
}

/// Ends with the engine's last user.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Arc<State>,
    thread: Thread,
}

impl Watch {
    /// Begins to watch the calls of an engine.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn new(engine: &Engine) -> std::io::Result<Watch> {
        let state = Arc::new(State {
            busy: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let (shared, engine) = (state.clone(), engine.clone());
        let thread =
            thread::Builder::new().name("sandbox clock".into()).spawn(move || count(&shared, &engine))?;
        Ok(Watch { state, thread: thread.thread().clone() })
    }

    /// Has the clock run while `call` does.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        // Either this sees that the thread sleeps, or the thread sees this before it does: both are in one order.
        self.state.busy.fetch_add(1, Ordering::SeqCst);
        if self.state.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        let result = call();
        self.state.busy.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

fn count(state: &State, engine: &Engine) {
    let mut idle = 0;
    while !state.over.load(Ordering::Relaxed) {
        thread::park_timeout(TICK);
        engine.increment_epoch();
        idle = if state.busy.load(Ordering::Relaxed) > 0 { 0 } else { idle + 1 };
        if idle > IDLE_TICKS {
            state.asleep.store(true, Ordering::SeqCst);
            while state.busy.load(Ordering::SeqCst) == 0 && !state.over.load(Ordering::Relaxed) {
                thread::park();
            }
            state.asleep.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }
}
