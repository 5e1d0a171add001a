//! Contents that each reply must have so that every listed client works.

use std::collections::BTreeMap;

use hydrant_tests::message::Message;
use hydrant_tests::transcript::Transcript;

use super::player::{CHILD, Exchange, captured};

/// What a command gets.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// `rc=0` and these fields, in a reply of this name.
    Done(&'static str, &'static [&'static str]),
    /// A value that was put before, or word that there is none.
    Value(&'static str),
    /// The new job's name, or in PMI-1 a code a process: MPICH's client gives up when it gets more or fewer.
    Spawn,
    /// What the neighbours said.
    Ring,
    /// A refusal, because the server does not offer it.
    NotOffered(&'static str),
    /// Nothing.
    Silence,
}

/// Every command that a captured client said.
const ANSWERS: &[(&str, Answer)] = &[
    ("initack", Answer::Done("initack", &["rank", "size", "appnum", "debug"])),
    ("init", Answer::Done("response_to_init", &["pmi_version", "pmi_subversion"])),
    (
        "fullinit",
        Answer::Done(
            "fullinit-response",
            &["pmi-version", "pmi-subversion", "rank", "size", "appnum", "debugged", "pmiverbose"],
        ),
    ),
    ("get_maxes", Answer::Done("maxes", &["kvsname_max", "keylen_max", "vallen_max"])),
    ("get_appnum", Answer::Done("appnum", &["appnum"])),
    ("get_universe_size", Answer::Done("universe_size", &["size"])),
    ("get_my_kvsname", Answer::Done("my_kvsname", &["kvsname"])),
    ("job-getid", Answer::Done("job-getid-response", &["jobid"])),
    ("put", Answer::Done("put_result", &[])),
    ("kvs-put", Answer::Done("kvs-put-response", &[])),
    ("info-putnodeattr", Answer::Done("info-putnodeattr-response", &[])),
    ("barrier_in", Answer::Done("barrier_out", &[])),
    ("kvs-fence", Answer::Done("kvs-fence-response", &[])),
    ("finalize", Answer::Done("finalize-response", &[])),
    ("get", Answer::Value("get_result")),
    ("kvs-get", Answer::Value("kvs-get-response")),
    ("info-getnodeattr", Answer::Value("info-getnodeattr-response")),
    ("info-getjobattr", Answer::Value("info-getjobattr-response")),
    ("spawn", Answer::Spawn),
    ("ring", Answer::Ring),
    ("job-connect", Answer::NotOffered("job-connect-response")),
    ("job-disconnect", Answer::NotOffered("job-disconnect-response")),
    ("name-publish", Answer::NotOffered("name-publish-response")),
    ("name-unpublish", Answer::NotOffered("name-unpublish-response")),
    ("name-lookup", Answer::NotOffered("name-lookup-response")),
    ("abort", Answer::Silence),
];

/// Fields with the same value in every run.
const ALWAYS: &[(&str, &str)] = &[
    ("pmi-version", "2"),
    ("pmi-subversion", "0"),
    ("appnum", "0"),
    ("debug", "0"),
    ("debugged", "FALSE"),
    ("pmiverbose", "FALSE"),
    ("kvsname_max", "256"),
    ("keylen_max", "64"),
    ("vallen_max", "1024"),
];

/// What the run is known to hold.
struct Run<'a> {
    exchange: &'a Exchange,
    rank: u32,
    puts: &'a BTreeMap<(bool, String), Vec<u8>>,
}

/// Checks every reply of an exchange.
pub(crate) fn check(family: &str, transcripts: &[Transcript], exchange: &Exchange) {
    let mut puts = BTreeMap::new();
    for (key, value) in &exchange.put_by_others {
        puts.insert((false, key.clone()), value.clone());
    }
    let said = exchange.steps.values().flatten().filter(|(who, _)| *who == 'C');
    for message in said.map(|(_, bytes)| captured(bytes)) {
        let node = message.name() == "info-putnodeattr";
        if node || matches!(message.name(), "put" | "kvs-put") {
            let value = message.get("value").expect("a put has a value").to_vec();
            puts.insert((node, message.text("key")), value);
        }
    }
    for (&rank, steps) in &exchange.steps {
        let run = Run { exchange, rank, puts: &puts };
        let mut steps = steps.iter().peekable();
        while let Some((who, bytes)) = steps.next() {
            assert_eq!(*who, 'C', "{family} rank {rank}: an unrequested reply: {}", bytes.escape_ascii());
            let question = captured(bytes);
            let reply = steps.next_if(|(who, _)| *who == 'P').map(|(_, bytes)| {
                Message::parse(bytes).unwrap_or_else(|e| panic!("{family}: {e} in {}", bytes.escape_ascii()))
            });
            if let Err(wrong) = run.reply(&question, reply.as_ref()) {
                let reply = reply.map_or_else(|| "nothing".to_owned(), |reply| reply.to_string());
                panic!("{family} rank {rank}: {question}\n  got {reply}\n  but {wrong}");
            }
        }
    }
    ending(family, transcripts, exchange);
}

/// An abort ends the job, in the name of who said it; nothing else does.
fn ending(family: &str, transcripts: &[Transcript], exchange: &Exchange) {
    let aborts = exchange
        .steps
        .values()
        .flatten()
        .any(|(who, bytes)| *who == 'C' && captured(bytes).name() == "abort");
    // A client that gave up under the captured server is no reason to end well here.
    let gave_up = transcripts.iter().any(|transcript| transcript.name.contains("fails"));
    match exchange.events.as_slice() {
        [] => assert!(!aborts, "{family}: the abort was not heard"),
        [event, ..] if aborts => assert!(event.contains("cause: Abort"), "{family}: {event}"),
        events => assert!(gave_up || !finalized(exchange), "{family}: {events:?}"),
    }
}

fn finalized(exchange: &Exchange) -> bool {
    let last = |steps: &Vec<(char, Vec<u8>)>| {
        let said = steps.iter().rfind(|(who, _)| *who == 'C');
        said.is_some_and(|(_, bytes)| captured(bytes).name() == "finalize")
    };
    exchange.steps.values().all(last)
}

impl Run<'_> {
    fn reply(&self, question: &Message, reply: Option<&Message>) -> Result<(), String> {
        let rule = ANSWERS.iter().find(|(name, _)| *name == question.name());
        let (_, answer) = rule.ok_or("there is no rule for this command")?;
        if let Answer::Silence = answer {
            return reply.map_or(Ok(()), |_| Err("no reply may come".to_owned()));
        }
        // In the end of a job that was aborted some wait for ever.
        let Some(reply) = reply else {
            let over = !self.exchange.events.is_empty() || self.exchange.broken_off;
            return if over { Ok(()) } else { Err("a reply must come".to_owned()) };
        };
        let name = match *answer {
            // PMI-1's has another name.
            Answer::Done("finalize-response", _) if !question.counted => "finalize_ack",
            Answer::Done(name, _) | Answer::Value(name) | Answer::NotOffered(name) => name,
            Answer::Ring => "ring-response",
            Answer::Spawn if !question.counted => "spawn_result",
            Answer::Spawn => "spawn-response",
            Answer::Silence => "",
        };
        same("the name", reply.name(), name)?;
        if question.get("thrid").is_some() {
            let (key, value) = reply.fields.get(1).ok_or("thrid must come right behind cmd")?;
            same("the field behind cmd", key, "thrid")?;
            same("thrid", &String::from_utf8_lossy(value), &question.text("thrid"))?;
        }
        match answer {
            Answer::Done(_, fields) => self.done(question, reply, fields),
            Answer::Value(_) => self.value(question, reply),
            Answer::Ring => self.ring(reply),
            Answer::Spawn => self.spawn(question, reply),
            Answer::NotOffered(_) => refused(reply),
            Answer::Silence => Ok(()),
        }
    }

    fn done(&self, question: &Message, reply: &Message, fields: &[&str]) -> Result<(), String> {
        same("rc", &reply.text("rc"), "0")?;
        for field in fields {
            if reply.get(field).is_none() {
                return Err(format!("{field} is missing"));
            }
        }
        let own = [
            ("rank", self.rank.to_string()),
            ("size", self.exchange.size.to_string()),
            (
                "jobid",
                if question.name() == "spawn" { CHILD.to_owned() } else { self.exchange.jobid.clone() },
            ),
            ("kvsname", self.exchange.jobid.clone()),
            ("pmi_version", question.text("pmi_version")),
        ];
        let always = ALWAYS.iter().map(|(key, value)| (*key, (*value).to_owned()));
        for (key, value) in own.into_iter().chain(always) {
            if reply.get(key).is_some() {
                same(key, &reply.text(key), &value)?;
            }
        }
        Ok(())
    }

    fn spawn(&self, question: &Message, reply: &Message) -> Result<(), String> {
        if question.counted {
            return self.done(question, reply, &["jobid", "errcodes"]);
        }
        same("rc", &reply.text("rc"), "0")?;
        let counts = question.fields.iter().filter(|(key, _)| key == "nprocs");
        let counts = counts.map(|(_, count)| String::from_utf8_lossy(count).parse::<usize>().unwrap_or(0));
        same("errcodes", &reply.text("errcodes"), &vec!["0"; counts.sum()].join(","))
    }

    /// Each hears what its neighbours handed to its side; the count is that of the ranks below.
    fn ring(&self, reply: &Message) -> Result<(), String> {
        same("rc", &reply.text("rc"), "0")?;
        let size = self.exchange.size;
        let said = |rank: u32| {
            let steps = self.exchange.steps.get(&(rank % size))?;
            let said = steps.iter().filter(|(who, _)| *who == 'C').map(|(_, bytes)| captured(bytes));
            said.into_iter().find(|message| message.name() == "ring")
        };
        let heard =
            |rank: u32, field: &str| said(rank).map(|message| message.text(field)).unwrap_or_default();
        same("ring-left", &reply.text("ring-left"), &heard(self.rank + size - 1, "ring-right"))?;
        same("ring-right", &reply.text("ring-right"), &heard(self.rank + 1, "ring-left"))?;
        let below = (0..self.rank).map(|rank| heard(rank, "ring-count").parse::<u32>().unwrap_or(0));
        same("ring-count", &reply.text("ring-count"), &below.sum::<u32>().to_string())
    }

    fn value(&self, question: &Message, reply: &Message) -> Result<(), String> {
        let foreign = ["jobid", "kvsname"].into_iter().filter_map(|field| question.get(field));
        if foreign.into_iter().any(|jobid| jobid != self.exchange.jobid.as_bytes()) {
            return refused(reply);
        }
        let key = question.text("key");
        let wanted = match (question.name(), key.as_str()) {
            ("get" | "info-getjobattr", "PMI_process_mapping") => {
                Some(format!("(vector,(0,1,{}))", self.exchange.size).into_bytes())
            }
            ("get" | "info-getjobattr", "universeSize") => Some(self.exchange.size.to_string().into_bytes()),
            ("get" | "info-getjobattr", "PMI_dead_processes") => Some(Vec::new()),
            ("info-getjobattr", "hasNameServ") => Some(b"1".to_vec()),
            ("info-getjobattr", "physTopology") => Some(b"complete".to_vec()),
            ("info-getjobattr", _) => None,
            (name, _) => self.puts.get(&(name == "info-getnodeattr", key)).cloned(),
        };
        let hit = wanted.is_some();
        if question.counted {
            same("rc", &reply.text("rc"), "0")?;
            same("found", &reply.text("found"), if hit { "TRUE" } else { "FALSE" })?;
        } else if (reply.text("rc") == "0") != hit {
            return Err(format!("rc must{} be 0", if hit { "" } else { " not" }));
        }
        match wanted {
            Some(wanted) if reply.get("value") != Some(&wanted) => {
                Err(format!("the value must be {}", wanted.escape_ascii()))
            }
            _ => Ok(()),
        }
    }
}

fn refused(reply: &Message) -> Result<(), String> {
    if matches!(reply.text("rc").as_str(), "" | "0") {
        return Err("rc must not be 0".to_owned());
    }
    let why = if reply.counted { "errmsg" } else { "msg" };
    if reply.text(why).is_empty() { Err(format!("{why} must say why")) } else { Ok(()) }
}

fn same(what: &str, got: &str, wanted: &str) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{what} must be {wanted:?}")) }
}
