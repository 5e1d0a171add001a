//! Requests of PMI-2 ranks beside those of PMIx ranks.

use hydrant_tests::host::counted;

use super::{Ask, NAMES, Name, World, contains, key_text, value_text};

impl World<'_> {
    pub(super) fn refused_pmi2(&mut self, conn: usize, which: u8) {
        let before = self.snapshot();
        let long = "v".repeat(1025);
        let body = match which % 9 {
            0 => "cmd=kvs-get;jobid=other;key=k;".to_owned(),
            1 => "cmd=kvs-put;key=;value=v;".to_owned(),
            2 => format!("cmd=kvs-put;key=k;value={long};"),
            3 => "cmd=nonsense;".to_owned(),
            4 => "cmd=kvs-get;jobid=nowhere;key=k;".to_owned(),
            5 => "cmd=job-connect;jobid=nowhere;".to_owned(),
            6 => "cmd=job-disconnect;jobid=other;".to_owned(),
            7 => "cmd=spawn;ncmds=0;".to_owned(),
            _ => "cmd=name-unpublish;name=unknown;".to_owned(),
        };
        let reply = self.host.ask(conn as u32, &counted(&body));
        assert!(!contains(&reply, b";rc=0;"), "{body} gives {}", reply.escape_ascii());
        let _ = self.host.server.take_limit_hit();
        assert!(before == self.snapshot(), "{body} changes nothing");
    }

    pub(super) fn ask_pmi2(&mut self, conn: usize, ask: &Ask) {
        let before = self.snapshot();
        let (body, found) = match ask {
            Ask::Put { key, value } => {
                let value = value_text(*value);
                let text = String::from_utf8_lossy(&value).into_owned();
                let body = format!("cmd=kvs-put;key={};value={text};", key_text(*key));
                self.pairs.insert(*key, value);
                (body, Ok(String::new()))
            }
            Ask::Get { key, .. } => {
                let found = match self.pairs.get(key) {
                    Some(value) => format!("found=TRUE;value={};", String::from_utf8_lossy(value)),
                    None => "found=FALSE;".to_owned(),
                };
                (format!("cmd=kvs-get;key={};", key_text(*key)), Ok(found))
            }
            Ask::Publish { keys, value, .. } => {
                let (key, value) = (keys[0], value_text(*value));
                let text = String::from_utf8_lossy(&value).into_owned();
                let full = self.names.len() as u32 == NAMES;
                let refused = full || self.names.contains_key(&(true, key));
                if !refused {
                    self.names.insert((true, key), Name { value, once: false, conn });
                }
                let body = format!("cmd=name-publish;name={};port={text};", key_text(key));
                (body, if refused { Err(()) } else { Ok(String::new()) })
            }
            Ask::Lookup { key } => {
                let found = self.names.get(&(true, *key)).ok_or(());
                let found = found.map(|name| format!("port={};", String::from_utf8_lossy(&name.value)));
                (format!("cmd=name-lookup;name={};", key_text(*key)), found)
            }
            Ask::Unpublish { keys } => {
                let Some(&key) = keys.first() else { return };
                let found = self.names.remove(&(true, key)).map(|_| String::new()).ok_or(());
                (format!("cmd=name-unpublish;name={};", key_text(key)), found)
            }
            _ => return,
        };
        let reply = self.host.ask(conn as u32, &counted(&body));
        let ok = contains(&reply, b";rc=0;");
        match found {
            Ok(part) => {
                let right = ok && (part.is_empty() || contains(&reply, part.as_bytes()));
                assert!(right, "{body} gives {}, expected {part}", reply.escape_ascii());
            }
            Err(()) => {
                assert!(!ok, "{body} gives {}", reply.escape_ascii());
                let _ = self.host.server.take_limit_hit();
                assert!(before == self.snapshot(), "the refusal of {body} changes nothing");
            }
        }
    }
}
