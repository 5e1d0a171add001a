//! PMIx messages of a recording, by name and field.

use std::collections::BTreeMap;

use hydrant_core::wire::Integers;
use hydrant_core::wire::pmix::{
    Command, Frame, HEADER_LEN, Hello, Info, Infos, Proc, Procs, Reader, WILDCARD, decode, next_frame, status,
};

/// Most elements of an array that are printed.
const LIST_MAX: usize = 8;

/// PMIx connection, whose messages are described for people.
#[derive(Debug)]
pub struct Dialect {
    integers: Integers,
    /// Names of the requests that have no reply yet, by tag.
    requests: BTreeMap<u32, &'static str>,
    /// Whether the reply to the handshake has been printed.
    joined: bool,
}

impl Dialect {
    /// Returns the state of a connection whose first bytes are a PMIx handshake.
    pub fn of(bytes: &[u8]) -> Option<Dialect> {
        bytes.starts_with(&[0xff]).then_some(Dialect {
            integers: Integers::Flexible,
            requests: BTreeMap::new(),
            joined: false,
        })
    }

    /// Describes the first message of a client. Returns its length, at most that of `bytes`, and the description. Its
    /// characters are ASCII.
    pub fn request(&mut self, bytes: &[u8]) -> (usize, String) {
        match next_frame(bytes) {
            Ok(Some(Frame::Hello { len, body })) => (len as usize, self.hello(body)),
            Ok(Some(Frame::Message { len, tag, body })) => {
                let command = decode(self.integers, body).ok().and_then(Result::ok);
                let (name, fields) =
                    command.map_or(("unreadable", String::new()), |command| describe(&command));
                self.requests.insert(tag, name);
                (len as usize, format!("PMIx {tag} {name}{fields}"))
            }
            _ => (bytes.len(), bytes.escape_ascii().to_string()),
        }
    }

    fn hello(&mut self, body: &[u8]) -> String {
        let Some(Hello { kind, namespace, rank, major, integers }) = Hello::decode(body) else {
            return format!("PMIx handshake: {}", body.escape_ascii());
        };
        self.integers = integers;
        let encoding = if integers == Integers::Fixed { "fixed" } else { "flexible" };
        let namespace = namespace.escape_ascii();
        let of = if kind.is_tool() { "a tool, " } else { "" };
        format!("PMIx handshake: {of}{namespace} rank {rank}, libpmix {major}, {encoding} integers")
    }

    /// Describes a message to a client. The characters are ASCII.
    pub fn reply(&mut self, bytes: &[u8]) -> String {
        if !std::mem::replace(&mut self.joined, true) {
            let refused = bytes.first_chunk().map(|status| i32::from_be_bytes(*status));
            return match refused {
                Some(status::SUCCESS) => "PMIx handshake accepted".to_owned(),
                status => format!("PMIx handshake refused: status {}", status.unwrap_or_default()),
            };
        }
        let tag = bytes.get(4..8).and_then(|tag| tag.first_chunk()).map_or(0, |tag| u32::from_be_bytes(*tag));
        let body = bytes.get(HEADER_LEN..).unwrap_or_default();
        let mut reader = Reader::new(self.integers, body);
        if tag == 0 {
            return format!("PMIx event{}", event(&mut reader).unwrap_or_default());
        }
        let name = self.requests.remove(&tag).unwrap_or("reply");
        if name == JOB_INFO {
            return format!("PMIx {tag} {name}: {} bytes", body.len());
        }
        let status = reader.single().and_then(|()| reader.int32());
        let rest = reader.rest();
        let rest = if rest.is_empty() { String::new() } else { format!(", {}", rest.escape_ascii()) };
        format!("PMIx {tag} {name}: status {}{rest}", status.unwrap_or_default())
    }
}

/// Name of the request whose reply has no status.
const JOB_INFO: &str = "job info";

/// Describes an event: its code, its source and its data.
fn event(reader: &mut Reader<'_>) -> Option<String> {
    reader.single()?;
    reader.byte()?;
    reader.single()?;
    let code = reader.int32()?;
    reader.single()?;
    let source = process(reader.proc()?);
    Some(format!(" {code} of {source}{}", infos(&reader.infos()?)))
}

/// Returns a name, or `any` without one.
fn name(name: Option<&[u8]>) -> String {
    name.map_or_else(|| "any".to_owned(), |name| name.escape_ascii().to_string())
}

/// Returns the name of a request, and its fields.
fn describe(command: &Command<'_>) -> (&'static str, String) {
    match command {
        Command::JobInfo => (JOB_INFO, String::new()),
        Command::Abort { code, message, procs } => {
            ("abort", format!(": code {code} {}{}", message.escape_ascii(), processes(procs)))
        }
        Command::Commit(commit) => {
            let [local, remote] = [commit.local, commit.remote];
            let parts = [
                (" removed local", local.removed),
                (" removed remote", remote.removed),
                (" local", local.put),
                (" remote", remote.put),
            ];
            let parts = parts.iter().filter(|(_, data)| !data.is_empty());
            let parts = parts.map(|(name, data)| format!("{name} {}", data.escape_ascii()));
            ("commit", format!(":{}", parts.collect::<String>()))
        }
        Command::Fence { procs, infos: options } => {
            ("fence", format!(":{}{}", processes(procs), infos(options)))
        }
        Command::Get { proc, infos: options, key } => {
            let key = key.map_or_else(|| "all keys".to_owned(), |key| key.escape_ascii().to_string());
            ("get", format!(": {key} of {}{}", process(*proc), infos(options)))
        }
        Command::Refresh(proc) => ("refresh", format!(": {}", process(*proc))),
        Command::ResolvePeers { host, namespace } => {
            ("resolve peers", format!(": {} of {}", name(*host), name(*namespace)))
        }
        Command::ResolveNodes(namespace) => ("resolve nodes", format!(": {}", name(*namespace))),
        Command::Finalize => ("finalize", String::new()),
        Command::Publish(_, data) => ("publish", format!(":{}", infos(data))),
        Command::Lookup(keys, options) => ("lookup", format!(":{}{}", list(keys.iter()), infos(options))),
        Command::Unpublish(keys, options) => {
            ("unpublish", format!(":{}{}", list(keys.iter()), infos(options)))
        }
        Command::Spawn { infos: options, apps } => {
            let apps = apps.iter().map(|app| format!(" {} of {}", app.processes, app.command.escape_ascii()));
            ("spawn", format!(":{}{}", apps.collect::<String>(), infos(options)))
        }
        Command::Connect(procs, options) => ("connect", format!(":{}{}", processes(procs), infos(options))),
        Command::Disconnect(procs, options) => {
            ("disconnect", format!(":{}{}", processes(procs), infos(options)))
        }
        Command::Notify { event, range, infos: data } => {
            ("notify", format!(": event {event} range {range}{}", infos(data)))
        }
        Command::RegisterEvents(codes) => {
            let codes: Vec<String> = codes.iter().map(|code| code.to_string()).collect();
            ("register events", format!(": {}", codes.join(" ")))
        }
        Command::DeregisterEvents(codes) => {
            let codes: Vec<String> = codes.iter().map(|code| code.to_string()).collect();
            ("deregister events", format!(": {}", codes.join(" ")))
        }
        Command::Query(queries) => {
            let queries = queries
                .iter()
                .map(|query| format!("{}{}", list(query.keys.iter()), infos(&query.qualifiers)));
            ("query", format!(":{}", queries.collect::<Vec<_>>().join(";")))
        }
        Command::Log(data, directives) => ("log", format!(":{}{}", infos(data), infos(directives))),
        Command::Monitor { monitor, code, infos: options } => {
            let what = (monitor.key.escape_ascii(), value(monitor));
            ("monitor", format!(": {}={} code {code}{}", what.0, what.1, infos(options)))
        }
        Command::Heartbeat => ("heartbeat", String::new()),
        Command::JobControl { targets, orders } => {
            ("job control", format!("{}:{}", processes(targets), infos(orders)))
        }
        Command::Allocate { directive, infos: wanted } => {
            ("allocate", format!(" directive {directive}:{}", infos(wanted)))
        }
        Command::PullOutput { sources, channels, handler } => {
            ("pull output", format!("{} channels {channels} as {handler}", processes(sources)))
        }
        Command::PushInput { targets, bytes } => {
            ("push input", format!("{}: {} bytes", processes(targets), bytes.len()))
        }
        Command::StopOutput { handler } => ("stop output", format!(" {handler}")),
        Command::GroupConstruct { name, procs, infos: options } => {
            let name = name.escape_ascii();
            ("construct group", format!(" {name}:{}{}", processes(procs), infos(options)))
        }
        Command::GroupDestruct { name, .. } => ("destruct group", format!(" {}", name.escape_ascii())),
        Command::Unsupported => ("unknown request", String::new()),
    }
}

fn process(proc: Proc<'_>) -> String {
    let name = proc.namespace.escape_ascii();
    if proc.rank == WILDCARD { format!("{name} all ranks") } else { format!("{name} rank {}", proc.rank) }
}

fn processes(procs: &Procs<'_>) -> String {
    let shown: Vec<String> = procs.iter().take(LIST_MAX).map(process).collect();
    let more = procs.iter().count().saturating_sub(LIST_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if shown.is_empty() { String::new() } else { format!(" {}{more}", shown.join(", ")) }
}

fn list<'a>(keys: impl Iterator<Item = &'a [u8]>) -> String {
    keys.take(LIST_MAX).map(|key| format!(" {}", key.escape_ascii())).collect()
}

fn infos(infos: &Infos<'_>) -> String {
    infos.iter().map(|info| format!(" {}={}", info.key.escape_ascii(), value(&info))).collect()
}

fn value(info: &Info<'_>) -> String {
    if let Some(flag) = info.as_bool() {
        return flag.to_string();
    }
    if let Some(text) = info.as_string().or_else(|| info.as_blob()) {
        return text.escape_ascii().to_string();
    }
    let number = info.as_u32().or_else(|| info.as_byte().map(u32::from));
    number.map_or_else(|| info.value.escape_ascii().to_string(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::wire::pmix::{Writer, kind, write_header};

    fn message(tag: u32, write: impl Fn(&mut Writer<'_>)) -> Vec<u8> {
        let mut body = [0; 256];
        let mut writer = Writer::new(Integers::Flexible, &mut body);
        write(&mut writer);
        let len = writer.finish().expect("it fits");
        [&write_header(tag, len as u32)[..], &body[..len]].concat()
    }

    #[test]
    fn messages_have_names_and_fields() {
        let body = b"native\0\0\0\0\0\0job.1\0\0\0\0\x025.0.11\0v41\0\x01hash\0";
        let hello = [&[0xff; 8][..], &(body.len() as u32).to_le_bytes(), &[0; 4], body].concat();
        assert!(Dialect::of(b"cmd=init").is_none());
        let mut dialect = Dialect::of(&hello).expect("it is a handshake");
        let joined = "PMIx handshake: job.1 rank 2, libpmix 5, flexible integers";
        assert_eq!(dialect.request(&hello), (hello.len(), joined.to_owned()));
        assert_eq!(dialect.reply(&[0; 8]), "PMIx handshake accepted");
        let fence = message(101, |writer| {
            writer.single();
            writer.byte(3);
            writer.array(2);
            writer.proc(b"job.1", WILDCARD);
            writer.proc(b"job.2", 3);
            writer.array(1);
            writer.info(b"pmix.collect", kind::BOOL);
            writer.byte(1);
        });
        let both = [&fence[..], b"more"].concat();
        let text = "PMIx 101 fence: job.1 all ranks, job.2 rank 3 pmix.collect=true";
        assert_eq!(dialect.request(&both), (fence.len(), text.to_owned()));
        assert_eq!(dialect.reply(&message(101, |writer| writer.status(-61))), "PMIx 101 fence: status -61");
        let unreadable = message(102, |writer| writer.single());
        assert_eq!(dialect.request(&unreadable).1, "PMIx 102 unreadable");
        assert_eq!(dialect.request(b"\0\0").0, 2);
    }
}
