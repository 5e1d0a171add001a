//! Thread that advances the engine's epoch while calls may be running, so that they end at their deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// Time between two epochs. A call ends at most two of them after its deadline.
pub(crate) const TICK: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct State {
    /// Whether a call has begun since the last tick.
    begun: AtomicBool,
    asleep: AtomicBool,
    stopped: AtomicBool,
}

/// Handle of the thread, which stops when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    state: Arc<State>,
    thread: Thread,
}

impl Ticker {
    /// Starts the thread. No call of the engine takes longer than `call_max` ticks.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn new(engine: &Engine, call_max: u64) -> std::io::Result<Ticker> {
        let state = Arc::new(State {
            begun: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        });
        let (shared, engine) = (state.clone(), engine.clone());
        let run = move || tick(&shared, &engine, call_max);
        let thread = thread::Builder::new().name("sandbox clock".into()).spawn(run)?;
        Ok(Ticker { state, thread: thread.thread().clone() })
    }

    /// Keeps the thread running for as long as a call that begins now may take. Most calls find that another call has
    /// set the flag since the last tick, and do nothing.
    pub(crate) fn begin_call(&self) {
        if self.state.begun.load(Ordering::Relaxed) {
            return;
        }
        // Sequential consistency: either this thread sees `asleep`, or the ticker sees `begun` before it sleeps.
        self.state.begun.store(true, Ordering::SeqCst);
        if self.state.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Advances the epoch until no call can be running, then sleeps until the next call begins.
fn tick(state: &State, engine: &Engine, call_max: u64) {
    let mut idle = 0;
    while !state.stopped.load(Ordering::Relaxed) {
        thread::park_timeout(TICK);
        engine.increment_epoch();
        idle = if state.begun.swap(false, Ordering::SeqCst) { 0 } else { idle + 1 };
        if idle > call_max {
            state.asleep.store(true, Ordering::SeqCst);
            while !state.begun.load(Ordering::SeqCst) && !state.stopped.load(Ordering::Relaxed) {
                thread::park();
            }
            state.asleep.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }
}
