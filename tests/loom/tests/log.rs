//! A reader of the shared log beside its writer, in every order that the memory model allows.

use hydrant_loom::{SharedLog, Step};
use loom::sync::Arc;
use loom::thread;

/// Runs `read` beside a writer.
fn beside(steps: &'static [Step], read: fn(&SharedLog)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let log = Arc::new(SharedLog::empty());
        let writer = thread::spawn({
            let log = Arc::clone(&log);
            move || log.write(steps)
        });
        read(&log);
        writer.join().expect("the writer ends");
    });
}

#[test]
fn a_reader_finds_a_whole_record_or_none() {
    beside(&[Step::Put("k", "v")], |log| {
        let value = log.get("k");
        assert!(matches!(value.as_deref(), None | Some("v")), "{value:?}");
    });
}

#[test]
fn a_reader_does_not_go_back_to_an_older_value() {
    beside(&[Step::Put("k", "a"), Step::Put("k", "b")], |log| {
        let values = [log.get("k"), log.get("k")];
        let order = |value: &Option<String>| match value.as_deref() {
            None => 0,
            Some("a") => 1,
            Some("b") => 2,
            other => panic!("a value that was never put: {other:?}"),
        };
        assert!(order(&values[0]) <= order(&values[1]), "{values:?}");
    });
}

#[test]
fn a_later_record_implies_the_earlier_ones() {
    beside(&[Step::Put("a", "1"), Step::Put("b", "2")], |log| {
        if log.get("b").is_some() {
            assert_eq!(log.get("a").as_deref(), Some("1"));
        }
    });
}

#[test]
fn a_record_that_moves_is_found_whole_or_not() {
    let steps =
        &[Step::PutElsewhere("a", "1"), Step::Put("k", "v"), Step::Compact, Step::PutElsewhere("x", "w")];
    beside(steps, |log| {
        let value = log.get("k");
        assert!(matches!(value.as_deref(), None | Some("v")), "{value:?}");
    });
}
