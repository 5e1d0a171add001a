//! Tests of the client.

use std::string::ToString;

use super::*;
use crate::{Failure, Text};

/// Expects `request` of `client`, and passes it `reply`, split at every position.
fn exchange<'a>(
    client: &mut Client,
    said: Result<Option<&[u8]>, Error>,
    request: &str,
    reply: &'a str,
) -> Reply<'a> {
    assert_eq!(
        said.unwrap().unwrap().escape_ascii().to_string(),
        request.as_bytes().escape_ascii().to_string()
    );
    for end in 0..reply.len() {
        assert_eq!(client.receive(&reply.as_bytes()[..end]), Ok(None), "{end}");
    }
    let received = client.receive(reply.as_bytes()).unwrap().unwrap();
    assert_eq!(received.consumed as usize, reply.len());
    assert!(!client.is_waiting());
    received.reply
}

macro_rules! handshake {
    ($client:ident, $request:expr, $reply:expr) => {{
        let mut buf = [0; 64];
        let said = $client.handshake(&mut buf).map(|said| said.map(<[u8]>::to_vec));
        exchange(&mut $client, said.as_ref().map(Option::as_deref).map_err(|&why| why), $request, $reply)
    }};
}

macro_rules! ask {
    ($client:ident, $command:expr, $request:expr, $reply:expr) => {{
        let mut buf = [0; 256];
        let said = $client.request(&$command, &mut buf).map(<[u8]>::to_vec);
        exchange(&mut $client, said.as_deref().map(Some).map_err(|&why| why), $request, $reply)
    }};
}

#[test]
fn pmi1_over_an_inherited_descriptor() {
    let mut client = Client::new(Protocol::V1, Start::Fd { rank: 1, size: 2 });
    assert_eq!(client.identity(), None);
    handshake!(
        client,
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n"
    );
    assert_eq!(client.handshake(&mut []), Ok(None));
    assert_eq!(client.identity(), Some(Identity { rank: 1, size: 2, appnum: None }));
    assert_eq!(client.subversion(), 2);
    let get = Command::Get { kvs: Some("kvs0".into()), key: "a".into(), source: None };
    let found =
        ask!(client, get, "cmd=get kvsname=kvs0 key=a\n", "cmd=get_result rc=0 msg=success value=b c\n");
    assert_eq!(found, Reply::Found(Op::Get, "b c".into()));
    ask!(client, Command::Finalize, "cmd=finalize\n", "cmd=finalize_ack\n");
    assert_eq!(client.request(&get, &mut [0; 64]), Err(Error::Over));
    assert_eq!(client.receive(b"cmd=finalize_ack\n"), Err(Error::Over));
}

// Fault: hydra 4 answers a PMI-1 client of `PMI_PORT` with rank and size in later lines
// Outcome: the client joins
// Guarantee: Rank and size are taken from any of the four lines
// Also: libraries `pmi1::exchanges_under_hydra`
#[test]
fn pmi1_over_a_port() {
    // The second form is hydra 4's.
    for acknowledged in ["cmd=initack rc=0", "cmd=initack"] {
        let mut client = Client::new(Protocol::V1, Start::Port { id: 1 });
        let reply = std::format!("{acknowledged}\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n");
        handshake!(client, "cmd=initack pmiid=1\n", &reply);
        assert_eq!(client.identity(), None);
        handshake!(
            client,
            "cmd=init pmi_version=1 pmi_subversion=1\n",
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
        );
        assert_eq!(client.identity(), Some(Identity { rank: 1, size: 2, appnum: Some(0) }));
    }
}

#[test]
fn pmi2_over_either() {
    for start in [Start::Fd { rank: 1, size: 2 }, Start::Port { id: 1 }] {
        let mut client = Client::new(Protocol::V2, start);
        handshake!(
            client,
            "cmd=init pmi_version=2 pmi_subversion=0\n",
            "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"
        );
        assert_eq!(client.identity(), None);
        handshake!(
            client,
            "    38cmd=fullinit;pmirank=1;threaded=FALSE;",
            "114   cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=-1;\
             debugged=FALSE;pmiverbose=FALSE;"
        );
        assert_eq!(client.identity(), Some(Identity { rank: 1, size: 2, appnum: Some(0) }));
        let id = ask!(
            client,
            Command::GetJobId,
            "    14cmd=job-getid;",
            "    39cmd=job-getid-response;jobid=kvs0;rc=0;"
        );
        assert_eq!(id, Reply::JobId("kvs0".into()));
        let unknown = ask!(
            client,
            Command::Fence { group: None },
            "    14cmd=kvs-fence;",
            "    37cmd=unknown-response;rc=14;errmsg=no;"
        );
        assert_eq!(unknown, Reply::Refused(Op::Fence, Failure::Remote(14, Text::from("no"))));
        let mut buf = [0; 96];
        let abort = Command::Abort { code: Some(3), world: true, message: "m".into() };
        assert!(client.request(&abort, &mut buf).is_ok());
        assert!(!client.is_waiting());
        assert_eq!(client.handshake(&mut buf), Err(Error::Over));
    }
}

#[test]
fn a_refused_handshake_ends_it() {
    let mut client = Client::new(Protocol::V1, Start::Port { id: 9 });
    let reply = handshake!(client, "cmd=initack pmiid=9\n", "cmd=initack rc=3 msg=no_such_rank\n");
    assert_eq!(reply, Reply::Refused(Op::InitAck, Failure::Remote(3, "no_such_rank".into())));
    assert_eq!(client.handshake(&mut [0; 64]), Err(Error::Refused));
    assert_eq!(client.request(&Command::GetMaxes, &mut [0; 64]), Err(Error::Refused));
}

#[test]
fn what_fails_without_harm() {
    let mut client = Client::new(Protocol::V1, Start::Fd { rank: 0, size: 1 });
    assert_eq!(client.request(&Command::GetMaxes, &mut [0; 64]), Err(Error::OutOfOrder));
    assert_eq!(client.receive(b""), Err(Error::OutOfOrder));
    assert_eq!(client.handshake(&mut [0; 8]), Err(Error::Encode(EncodeError::DoesNotFit)));
    assert!(client.handshake(&mut [0; 64]).is_ok());
    assert_eq!(client.handshake(&mut [0; 64]), Err(Error::Busy));
    assert!(client.receive(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n").is_ok());
    let ring = Command::Ring { count: 0, left: "".into(), right: "".into() };
    assert_eq!(client.request(&ring, &mut [0; 64]), Err(Error::Encode(EncodeError::Unsupported)));
    let put = Command::Put { kvs: None, key: "k".into(), value: "a\nb".into() };
    assert_eq!(client.request(&put, &mut [0; 64]), Err(Error::Encode(EncodeError::Unprintable)));
    assert_eq!(client.request(&Command::InitAck { pmiid: 0 }, &mut [0; 64]), Err(Error::OutOfOrder));
    assert!(client.request(&Command::GetMaxes, &mut [0; 64]).is_ok());
    assert_eq!(client.request(&Command::GetMaxes, &mut [0; 64]), Err(Error::Busy));
}

#[test]
fn what_ends_the_conversation() {
    for (reply, why) in [
        (&b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"[..], Error::Version(1)),
        (b"cmd=finalize_ack rc=0\n", Error::Unasked(Op::Finalize)),
        (b"HTTP", Error::Malformed(Malformed::NoCommand)),
        (b"cmd=response_to_init rc=0\n", Error::Malformed(Malformed::Structure)),
    ] {
        let mut client = Client::new(Protocol::V2, Start::Port { id: 0 });
        assert!(client.handshake(&mut [0; 64]).is_ok());
        assert_eq!(client.receive(reply), Err(why));
        assert_eq!(client.handshake(&mut [0; 64]), Err(Error::Over));
    }
}
