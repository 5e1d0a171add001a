//! The clock by which calls are broken off: a thread that counts while somebody may be in a call, and sleeps
//! otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// How often it counts; a call is broken off at most that much after its deadline.
pub(crate) const TICK: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct State {
    /// Whether a call has begun since the last tick.
    begun: AtomicBool,
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
    /// Begins to watch the calls of an engine, of which none takes longer than so many ticks.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn new(engine: &Engine, longest: u64) -> std::io::Result<Watch> {
        let state = Arc::new(State {
            begun: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let (shared, engine) = (state.clone(), engine.clone());
        let clock = move || count(&shared, &engine, longest);
        let thread = thread::Builder::new().name("sandbox clock".into()).spawn(clock)?;
        Ok(Watch { state, thread: thread.thread().clone() })
    }

    /// Has the clock run for as long as a call that begins here may take. Most calls find that another has seen to it
    /// since the last tick, and look no further.
    pub(crate) fn begin(&self) {
        if self.state.begun.load(Ordering::Relaxed) {
            return;
        }
        // Either this sees that the thread sleeps, or the thread sees this before it does: both are in one order.
        self.state.begun.store(true, Ordering::SeqCst);
        if self.state.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Counts until the last call that began has been over for sure, then sleeps until another begins.
fn count(state: &State, engine: &Engine, longest: u64) {
    let mut idle = 0;
    while !state.over.load(Ordering::Relaxed) {
        thread::park_timeout(TICK);
        engine.increment_epoch();
        idle = if state.begun.swap(false, Ordering::SeqCst) { 0 } else { idle + 1 };
        if idle > longest {
            state.asleep.store(true, Ordering::SeqCst);
            while !state.begun.load(Ordering::SeqCst) && !state.over.load(Ordering::Relaxed) {
                thread::park();
            }
            state.asleep.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }
}
