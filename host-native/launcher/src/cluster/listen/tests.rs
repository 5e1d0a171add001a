use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::super::link::Opening;
use super::*;

const CHILD: u32 = 5;

/// A port at which node 5 is waited for by node 2.
struct Door {
    port: Port,
    strangers: Strangers,
    job: JobKey,
    secret: Secret,
    open: bool,
}

impl Door {
    fn new() -> Door {
        let port = Port::open(Ipv4Addr::LOCALHOST.into()).unwrap();
        let job = JobKey::random().unwrap();
        Door { port, strangers: Strangers::default(), job, secret: Secret::random().unwrap(), open: true }
    }

    fn ends(&self) -> Ends {
        Ends { job: self.job, parent: 2, child: CHILD }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.port.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// Takes in whoever has connected and hears everybody.
    fn turn(&mut self, now: u64) -> Option<Admitted> {
        while let Some(stream) = self.port.accept().unwrap() {
            self.strangers.open(stream, now, 30_000).unwrap();
        }
        let expected = |node| {
            (self.open && node == CHILD).then_some(Expected {
                job: self.job,
                parent: 2,
                secret: &self.secret,
            })
        };
        (0..STRANGERS as u32).find_map(|id| self.strangers.hear(id, expected))
    }

    /// Until somebody is let in.
    fn admit(&mut self, now: u64) -> Admitted {
        until(|| self.turn(now))
    }

    /// Until this many wait.
    fn hold(&mut self, now: u64, count: usize) {
        until(|| {
            assert!(self.turn(now).is_none());
            (self.strangers.all.iter().flatten().count() == count).then_some(())
        });
    }
}

fn until<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(Instant::now() < deadline, "it does not come about");
        std::thread::yield_now();
    }
}

/// The child's part on a connection; what it says is returned as well.
fn join(door: &mut Door, stream: &mut TcpStream) -> [Vec<u8>; 2] {
    let (opening, bytes) = Opening::new(&door.ends(), &door.secret);
    stream.write_all(&bytes).unwrap();
    let mut answer = [0; super::super::link::ANSWER];
    stream.set_nonblocking(true).unwrap();
    until(|| {
        assert!(door.turn(0).is_none(), "an opening alone admits nobody");
        stream.peek(&mut answer).is_ok_and(|len| len == answer.len()).then_some(())
    });
    stream.set_nonblocking(false).unwrap();
    stream.read_exact(&mut answer).unwrap();
    let mut noise = opening.finish(&answer).unwrap();
    let mut frame = vec![0; EMPTY_FRAME];
    frame[1] = EMPTY_FRAME as u8 - 2;
    assert_eq!(noise.write_message(&[0], &mut frame[2..]).unwrap(), EMPTY_FRAME - 2);
    stream.write_all(&frame).unwrap();
    [bytes.to_vec(), frame]
}

#[test]
fn the_child_is_let_in_and_nobody_else() {
    let mut door = Door::new();
    let silent = door.connect();
    let mut rubbish = door.connect();
    rubbish.write_all(&[b'G'; 4096]).unwrap();
    let mut half = door.connect();
    let (_, opening) = Opening::new(&door.ends(), &door.secret);
    half.write_all(&opening[..30]).unwrap();
    let mut wrong_secret = door.connect();
    let (_, bytes) = Opening::new(&door.ends(), &Secret::random().unwrap());
    wrong_secret.write_all(&bytes).unwrap();
    let mut wrong_number = door.connect();
    let (_, bytes) = Opening::new(&Ends { child: 6, ..door.ends() }, &door.secret);
    wrong_number.write_all(&bytes).unwrap();
    let mut pretender = door.connect();
    let (_, mut bytes) = Opening::new(&Ends { child: 6, ..door.ends() }, &door.secret);
    bytes[8..12].copy_from_slice(&CHILD.to_be_bytes());
    pretender.write_all(&bytes).unwrap();
    // The silent one and the one that is not done are still there; the others are gone.
    door.hold(0, 2);
    for stream in [&mut wrong_secret, &mut wrong_number, &mut pretender] {
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    }
    let mut child = door.connect();
    join(&mut door, &mut child);
    assert_eq!(door.admit(0).node, CHILD);
    assert_eq!(door.strangers.deadline(), Some(HANDSHAKE_TIMEOUT));
    door.strangers.expire(HANDSHAKE_TIMEOUT);
    for mut stream in [silent, half] {
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    }
}

#[test]
fn a_handshake_played_again_leads_nowhere() {
    let mut door = Door::new();
    let mut child = door.connect();
    let recorded = join(&mut door, &mut child);
    // The child itself has not been heard to the end.
    let mut replay = door.connect();
    replay.write_all(&recorded.concat()).unwrap();
    assert_eq!(door.admit(0).node, CHILD);
    let mut rest = Vec::new();
    until(|| door.turn(0).is_none().then(|| door.strangers.oldest().is_none()).filter(|&gone| gone));
    // It may be reset, because it had said more than was read.
    let _ = replay.read_to_end(&mut rest);
    assert!(rest.len() <= super::super::link::ANSWER);
    door.open = false;
    let mut again = door.connect();
    again.write_all(&recorded.concat()).unwrap();
    until(|| {
        assert!(door.turn(0).is_none());
        (again.read(&mut [0; 8]).is_ok_and(|len| len == 0) || again.take_error().is_ok()).then_some(())
    });
}

#[test]
fn the_silent_give_way() {
    let mut door = Door::new();
    let crowd: Vec<TcpStream> = (0..STRANGERS).map(|_| door.connect()).collect();
    door.hold(3, STRANGERS);
    let mut child = door.connect();
    join(&mut door, &mut child);
    assert_eq!(door.admit(4).node, CHILD);
    assert_eq!(door.strangers.all.len(), STRANGERS);
    drop(crowd);
}

#[test]
fn interfaces_are_known_by_name_and_by_address() {
    let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
    assert_eq!(interface("127.0.0.1").unwrap(), [loopback]);
    assert_eq!(interface("lo").unwrap(), [loopback]);
    let error = interface("nothing0").unwrap_err().to_string();
    assert!(error.starts_with("this machine has no network interface \"nothing0\"; there are "), "{error}");
    assert!(error.contains("lo") && interface("192.0.2.77").is_err());
}

#[test]
fn hosts_are_reached_from_the_address_that_leads_there() {
    let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
    assert_eq!(towards(["127.0.0.1", "me@127.0.0.1"].into_iter()), [loopback]);
    assert!(!towards(["no.such.host.invalid"].into_iter()).is_empty());
}
