//! Every captured exchange replayed against the core: each client's messages in one piece, byte by byte, and split at
//! random, and the replies checked.
//!
//! The captured replies are what other servers said, not what is right, so they are not compared. What each reply
//! must hold is in `rules`; the whole of each exchange is kept as a snapshot beside it (`INSTA_UPDATE=always`
//! rewrites the snapshots; read the difference).

mod player;
mod rules;

use std::collections::BTreeMap;

use hydrant_tests::transcript::{self, Transcript};
use player::{Exchange, play};

use crate::split::Split;

/// The transcripts of each run, in the order of their ranks.
fn families() -> BTreeMap<String, Vec<Transcript>> {
    let mut families: BTreeMap<String, Vec<Transcript>> = BTreeMap::new();
    for transcript in transcript::all() {
        families.entry(transcript.family().to_owned()).or_default().push(transcript);
    }
    families
}

fn shown(exchange: &Exchange) -> String {
    let mut text = String::new();
    for (rank, steps) in &exchange.steps {
        text.push_str(&format!("rank {rank}\n"));
        for (who, bytes) in steps {
            text.push_str(&format!("{who}> {}\n", bytes.escape_ascii()));
        }
    }
    for event in &exchange.events {
        text.push_str(&format!("event {event}\n"));
    }
    text
}

#[test]
fn every_exchange_gets_the_right_replies() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let families = families();
    assert!(families.len() >= 24, "only {} families of transcripts", families.len());
    for (family, transcripts) in families {
        let exchange = play(&family, &transcripts, Split::Whole);
        rules::check(&family, &transcripts, &exchange);
        settings.bind(|| insta::assert_snapshot!(family.as_str(), shown(&exchange)));
    }
}

#[test]
fn how_messages_are_split_makes_no_difference() {
    for (family, transcripts) in families() {
        let whole = play(&family, &transcripts, Split::Whole);
        for split in [Split::Bytes].into_iter().chain((1..=8).map(Split::Random)) {
            let other = play(&family, &transcripts, split);
            assert_eq!(shown(&whole), shown(&other), "{family}, split {split:?}");
        }
    }
}
