//! Texts of PMIx clients for the user and for the log of the system.

use heapless::String;

use super::super::Server;
use super::super::dispatch::Requester;
use crate::fault::Refusal;
use crate::state::{ReplyState, Response};
use crate::tables::upcalls::Task;
use crate::trace::Stream;
use crate::wire::pmix::{HelpText, HostCall, Infos, keys, status};
use crate::wire::{Integers, Op};

/// Priority of a text for the log of the system without a directive: an error.
const PRIORITY: u32 = 3;
/// Lowest priority.
const PRIORITY_MAX: u32 = 7;

/// Where a text goes.
enum Channel {
    Stream(Stream),
    /// Log of the system of this host, or of the head's.
    Syslog {
        global: bool,
    },
}

impl Server<'_> {
    /// Passes texts to the host, those for standard output and standard error as output of the rank. One text of a request may be
    /// for the log of the system. A client whose texts are all refused prints them itself. The host prints a help text once.
    pub(super) fn pmix_log(
        &mut self,
        requester: Requester,
        integers: Integers,
        infos: &Infos<'_>,
        directives: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        let asks = self.host_answers(requester);
        let channel = |key: &[u8]| match key {
            keys::LOG_STDOUT => Some(Channel::Stream(Stream::Stdout)),
            keys::LOG_STDERR => Some(Channel::Stream(Stream::Stderr)),
            keys::LOG_SYSLOG | keys::LOG_LOCAL_SYSLOG if asks => Some(Channel::Syslog { global: false }),
            keys::LOG_GLOBAL_SYSLOG if asks => Some(Channel::Syslog { global: true }),
            _ => None,
        };
        if infos.iter().any(|info| channel(info.key).is_some() && info.as_string().is_none()) {
            return Err(Refusal::BadField);
        }
        if let Some(text) = help_text(infos, directives).filter(|_| asks) {
            let write = |room: &mut [u8]| HostCall::write_help(integers, &text, room);
            return self.ask_host(requester, Op::GetJobAttr, |_, room| write(room));
        }
        let once = directives.is_set(keys::LOG_ONCE);
        // The reason of the last text that is refused.
        let (mut printed, mut refused, mut logged) = (false, None, None);
        for info in infos.iter() {
            let text = info.as_string().unwrap_or_default();
            match channel(info.key) {
                Some(Channel::Stream(stream)) => match self.print(requester, stream, text) {
                    Ok(()) => printed = true,
                    Err(why) => refused = Some(why),
                },
                Some(Channel::Syslog { global }) if logged.is_none() => logged = Some((global, text)),
                _ => refused = Some(Refusal::Unsupported),
            }
            if once && (printed || logged.is_some()) {
                break;
            }
        }
        if let Some((global, text)) = logged {
            let priority = directives.find(keys::LOG_SYSLOG_PRI).and_then(|info| info.as_u32());
            let priority = priority.unwrap_or(PRIORITY).min(PRIORITY_MAX) as u8;
            let write = |room: &mut [u8]| HostCall::write_syslog(integers, global, priority, text, room);
            match self.ask_host(requester, Op::GetJobAttr, |_, room| write(room)) {
                Err(why) => refused = Some(why),
                waits => return waits,
            }
        }
        match refused {
            Some(why) if !printed => Err(why),
            Some(_) => Ok(ReplyState::Ready(Response::status(status::PARTIAL_SUCCESS))),
            None => Ok(ReplyState::Ready(Response::status(status::SUCCESS))),
        }
    }

    /// Passes a text to the host, to be printed as output of the rank.
    fn print(&mut self, requester: Requester, stream: Stream, text: &[u8]) -> Result<(), Refusal> {
        if !text.is_empty() {
            let parent = (requester.job, requester.rank);
            self.upcalls.ask(parent, String::new(), requester.conn, Task::Log(stream), text)?;
            self.events_pending = true;
        }
        Ok(())
    }
}

/// Returns the only text of a request if it has a file and a topic of help texts, unless each is to be printed (`PMIX_LOG_AGG`).
fn help_text<'a>(infos: &Infos<'a>, directives: &Infos<'a>) -> Option<HelpText<'a>> {
    let name = |key: &[u8]| directives.find(key)?.as_string().filter(|name| name.len() <= u8::MAX.into());
    let (file, topic) = (name(keys::LOG_KEY)?, name(keys::LOG_VAL)?);
    let info = infos
        .iter()
        .next()
        .filter(|info| infos.len() == 1 && [keys::LOG_STDOUT, keys::LOG_STDERR].contains(&info.key))?;
    let is_counted = directives.find(keys::LOG_AGG).is_none_or(|agg| agg.as_bool() != Some(false));
    let text = info.as_string().filter(|text| is_counted && !text.is_empty())?;
    Some(HelpText { file, topic, text, to_stdout: info.key == keys::LOG_STDOUT })
}
