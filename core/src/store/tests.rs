//! Tests of readers of the log.

use std::vec::Vec;

use proptest::prelude::*;

use super::atomic::{AtomicU32, Ordering};
use super::log::{Log, index_len};
use crate::wire::log::{Entries, LogView};

const KEYS: u32 = 32;

fn words(bytes: &[u8]) -> Vec<AtomicU32> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| AtomicU32::new(u32::from_ne_bytes(word))).collect()
}

fn numbers(count: usize) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

fn get(view: &LogView<'_>, space: u32, key: &str) -> Option<Vec<u8>> {
    let mut buf = [0; 64];
    view.get(space, key.as_bytes(), &mut buf).map(|len| buf[..len as usize].to_vec())
}

/// Puts all pairs. Returns the memory of the log.
fn written(puts: &[(u32, std::string::String, Option<std::string::String>)], index: &[AtomicU32]) -> Vec<u8> {
    let mut bytes = std::vec![0; 16 * 1024];
    let mut log = Log::new(&mut bytes, index, KEYS, 42).unwrap();
    for (space, key, value) in puts {
        let key = log.key(*space, key.as_bytes());
        let slot = log.find(&key);
        let value = value.as_ref().map(|value| core::iter::once(value.as_bytes()));
        log.append(&key, slot, 7, value).unwrap();
    }
    bytes
}

#[test]
fn short_buffers_get_the_front_and_the_whole_length() {
    let index = numbers(index_len(KEYS) as usize);
    let log = words(&written(&[(3, "key".into(), Some("a longer value".into()))], &index));
    let view = LogView::new(&log, &index, 42).unwrap();
    for room in 0..20 {
        let mut buf = std::vec![b'.'; room];
        assert_eq!(view.get(3, b"key", &mut buf), Some(14));
        let kept = room.min(14);
        assert_eq!(buf[..kept], b"a longer value"[..kept]);
        assert!(buf[kept..].iter().all(|&byte| byte == b'.'));
    }
    assert_eq!((view.get(2, b"key", &mut []), view.get(3, b"ke", &mut [])), (None, None));
    assert!(LogView::new(&log, &index[..4], 42).is_none() && LogView::new(&log, &[], 42).is_none());
}

proptest! {
    #[test]
    fn sees_what_the_log_holds(
        puts in proptest::collection::vec((0u32..3, "[ab]{1,5}", proptest::option::of("[x-z]{0,9}")), 1..KEYS as usize),
    ) {
        let index = numbers(index_len(KEYS) as usize);
        let mut bytes = written(&puts, &index);
        let log = words(&bytes);
        let view = LogView::new(&log, &index, 42).unwrap();
        for (space, key, _) in &puts {
            let newest = puts.iter().rev().find(|put| put.0 == *space && put.1 == *key);
            let wanted = newest.and_then(|(_, _, value)| value.as_ref()).map(|value| value.clone().into_bytes());
            prop_assert_eq!(get(&view, *space, key), wanted);
            prop_assert_eq!(get(&view, *space + 3, key), None);
        }
        // A view of less memory finds nothing beyond its end, even if the index refers to it.
        bytes.truncate(4);
        prop_assert!(LogView::new(&words(&bytes), &index, 42).unwrap().get(0, b"a", &mut []).is_none());
    }

    #[test]
    fn a_spoilt_log_is_read_without_harm(
        puts in proptest::collection::vec((0u32..2, "[ab]{1,3}", proptest::option::of("[x-z]{0,9}")), 1..KEYS as usize),
        spoilt in proptest::collection::vec((0usize..256, any::<u32>()), 0..8),
        crossed in proptest::collection::vec((0usize..64, 0u32..1024), 0..8),
    ) {
        let index = numbers(index_len(KEYS) as usize);
        let bytes = written(&puts, &index);
        let log = words(&bytes);
        for (at, word) in spoilt {
            log[at].store(word, Ordering::Relaxed);
        }
        // The entry of one key gets the place of another record.
        let places = Entries::of(bytes.len());
        for (at, place) in crossed {
            let slot = &index[at % index.len()];
            let tag = slot.load(Ordering::Relaxed);
            slot.store(places.entry(tag, place * 4), Ordering::Relaxed);
        }
        let view = LogView::new(&log, &index, 42).unwrap();
        for (space, key, _) in &puts {
            let mut buf = [0; 64];
            prop_assert!(view.get(*space, key.as_bytes(), &mut buf).is_none_or(|len| len <= 512));
        }
    }
}
