//! Tests of the parts of a probe that need no server.

use super::*;

#[test]
fn cards_and_times_round_trip() {
    let card = Card { pid: 12, host: "n@1".to_owned() };
    assert_eq!(Card::parse(&card.to_string()), Some(card));
    assert_eq!(Card::parse("12"), None);
    let times = Times { init: Duration::from_micros(1), get: Duration::from_micros(9), ..Times::default() };
    assert_eq!(Times::parse(&times.to_string()), Some(times));
    assert_eq!(Times::parse("1,2,3"), None);
}

#[test]
fn values_are_distinct() {
    let mut seen = std::collections::HashSet::new();
    for (round, rank, number) in
        (0..4).flat_map(|a| (0..16).flat_map(move |b| (0..4).map(move |c| (a, b, c))))
    {
        let value = card::value(round, rank, number, 64);
        assert_eq!(value.len(), 64);
        assert!(value.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{value}");
        assert_eq!(value, card::value(round, rank, number, 64));
        assert!(seen.insert(value));
    }
}

#[test]
fn errors_name_rank_key_and_position() {
    let check = |got: Option<&str>| check("probe-0-3-1".to_owned(), 3, got.map(str::to_owned), "abcdef");
    assert!(check(Some("abcdef")).is_ok());
    let errors =
        [None, Some("abXdef"), Some("abc"), Some("abcdefg")].map(|got| check(got).unwrap_err().to_string());
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn the_table_is_aligned_and_has_a_summary() {
    let row = |rank, pid, host: &str, us| Row {
        rank,
        card: Card { pid, host: host.to_owned() },
        times: Times {
            init: Duration::from_micros(us),
            get: Duration::from_micros(us * 100),
            ..Times::default()
        },
    };
    let options = Options { pmi: Protocol::V1, pmix: false, json: false, keys: 2, bytes: 64, rounds: 3 };
    let rows = [row(0, 999, "node1", 7), row(1, 100_000, "a-longer-name", 1234)];
    insta::assert_snapshot!(report::table(&rows, &options));
    insta::assert_snapshot!(report::document(&rows[..1], &options));
    insta::assert_snapshot!(report::table(&rows[..1], &Options { keys: 1, rounds: 1, ..options }));
}
