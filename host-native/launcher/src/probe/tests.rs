//! The parts of a probe that need no server.

use super::*;

fn server(variables: &[(&str, &str)]) -> Result<Option<Server>, String> {
    let get = |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
    Server::from_environment(get).map_err(|error| error.to_string())
}

#[test]
fn the_server_is_where_the_environment_says() {
    assert_eq!(server(&[]), Ok(None));
    assert_eq!(server(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), Ok(None));
    let fd = [("PMI_FD", "5"), ("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_PORT", "h:1")];
    assert_eq!(server(&fd), Ok(Some(Server::Fd { fd: 5, rank: 1, size: 2 })));
    let port = [("PMI_PORT", "127.0.0.1:7"), ("PMI_ID", "3")];
    assert_eq!(server(&port), Ok(Some(Server::Port { address: "127.0.0.1:7".to_owned(), id: 3 })));
}

#[test]
fn an_environment_that_is_wrong_is_named() {
    for (variables, name) in [
        (&[("PMI_FD", "x")][..], "PMI_FD"),
        (&[("PMI_FD", "5")], "PMI_RANK"),
        (&[("PMI_FD", "5"), ("PMI_RANK", "0"), ("PMI_SIZE", "-1")], "PMI_SIZE"),
        (&[("PMI_PORT", "h:1")], "PMI_ID"),
    ] {
        let error = server(variables).unwrap_err();
        assert!(error.contains(name), "{error}");
    }
    let closed = Server::Fd { fd: 1 << 20, rank: 0, size: 1 };
    let error = Link::join(&closed, Protocol::V1).err().expect("no such descriptor").to_string();
    assert!(error.contains("1048576"), "{error}");
}

#[test]
fn cards_and_times_are_read_as_they_were_written() {
    let card = Card { pid: 12, host: "n@1".to_owned() };
    assert_eq!(Card::parse(&card.to_string()), Some(card));
    assert_eq!(Card::parse("12"), None);
    let times = Times { init: Duration::from_micros(1), get: Duration::from_micros(9), ..Times::default() };
    assert_eq!(Times::parse(&times.to_string()), Some(times));
    assert_eq!(Times::parse("1,2,3"), None);
}

#[test]
fn every_value_is_another_one() {
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
fn what_is_wrong_is_named_with_rank_key_and_place() {
    let check = |got: Option<&str>| check("probe-0-3-1".to_owned(), 3, got.map(str::to_owned), "abcdef");
    assert!(check(Some("abcdef")).is_ok());
    let errors =
        [None, Some("abXdef"), Some("abc"), Some("abcdefg")].map(|got| check(got).unwrap_err().to_string());
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn the_table_is_aligned_and_summed_up() {
    let row = |rank, pid, host: &str, us| Row {
        rank,
        card: Card { pid, host: host.to_owned() },
        times: Times {
            init: Duration::from_micros(us),
            get: Duration::from_micros(us * 100),
            ..Times::default()
        },
    };
    let options = Options { pmi: Protocol::V1, keys: 2, bytes: 64, rounds: 3 };
    let rows = [row(0, 999, "node1", 7), row(1, 100_000, "a-longer-name", 1234)];
    insta::assert_snapshot!(report::table(&rows, &options));
    insta::assert_snapshot!(report::table(&rows[..1], &Options { keys: 1, rounds: 1, ..options }));
}
