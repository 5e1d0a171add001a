//! Programs of the ranks: scripts of steps. A rank sends a request after the reply to the previous one.

use hydrant_core::trace::Exit;

/// Keys that each rank has.
pub const KEYS: u32 = 3;

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Performs the handshake.
    Init,
    /// Puts a value that names the round under one of its keys.
    Put {
        /// Number of the key.
        key: u32,
        /// The round.
        round: u32,
        /// Length of the value in bytes.
        len: usize,
        /// The put may be refused for lack of room.
        greedy: bool,
    },
    /// Waits for others, at a meeting that all of them name by the same number.
    Meet {
        /// Index of the meeting in the scenario.
        meeting: usize,
    },
    /// Reads another's key.
    Get {
        /// Rank that put the key.
        rank: u32,
        /// Number of the key.
        key: u32,
    },
    /// Finalizes.
    Finalize,
    /// Its process ends.
    End(Exit),
}

/// Meeting of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Ranks that have to arrive.
    pub members: Vec<u32>,
    /// Kind of request.
    pub kind: Kind,
}

/// Kinds of meetings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The fence of all ranks.
    Fence,
    /// The barrier of a group with this tag.
    Group(u32),
    /// A ring.
    Ring,
}

/// A rank in its program.
#[derive(Clone, Debug)]
pub struct Script {
    /// Steps of the rank.
    pub steps: Vec<Step>,
    /// Index of the current step.
    pub at: usize,
    /// Name of the job.
    pub name: String,
    /// PMI version: 1 or 2.
    pub protocol: u32,
    /// Exit of the process, after its end.
    pub exit: Option<Exit>,
}

impl Script {
    /// Returns the current step.
    pub fn step(&self) -> Option<&Step> {
        self.steps.get(self.at)
    }

    /// Returns the request of a step. None for a step without a request.
    pub fn message(&self, rank: u32, step: &Step, meetings: &[Meeting]) -> Option<Vec<u8>> {
        let words = match self.protocol {
            1 => self.line(rank, step, meetings)?,
            _ => self.counted(rank, step, meetings)?,
        };
        Some(words.into_bytes())
    }

    fn line(&self, rank: u32, step: &Step, meetings: &[Meeting]) -> Option<String> {
        Some(match *step {
            Step::Init => "cmd=init pmi_version=1 pmi_subversion=1\n".to_owned(),
            Step::Put { key, round, len, .. } => {
                format!("cmd=put kvsname={} key=k{rank}.{key} value={}\n", self.name, value(round, len))
            }
            Step::Get { rank, key } => format!("cmd=get kvsname={} key=k{rank}.{key}\n", self.name),
            Step::Meet { meeting } => match meetings[meeting].kind {
                Kind::Fence => "cmd=barrier_in\n".to_owned(),
                Kind::Group(tag) => {
                    let members: Vec<String> =
                        meetings[meeting].members.iter().map(|rank| rank.to_string()).collect();
                    format!("cmd=barrier_in group={}:{tag}\n", members.join(","))
                }
                Kind::Ring => return None,
            },
            Step::Finalize => "cmd=finalize\n".to_owned(),
            Step::End(_) => return None,
        })
    }

    fn counted(&self, rank: u32, step: &Step, meetings: &[Meeting]) -> Option<String> {
        let body = match *step {
            Step::Init => {
                let hello = "cmd=init pmi_version=2 pmi_subversion=0\n";
                let body = format!("cmd=fullinit;pmirank={rank};");
                return Some(format!("{hello}{:6}{body}", body.len()));
            }
            Step::Put { key, round, len, .. } => {
                format!("cmd=kvs-put;key=k{rank}.{key};value={};", value(round, len))
            }
            Step::Get { rank, key } => {
                // Some hints are wrong, and some gets have none.
                let hint = match self.at % 8 {
                    6 => -1,
                    7 => i64::from(rank) + 1,
                    _ => i64::from(rank),
                };
                format!("cmd=kvs-get;srcid={hint};key=k{rank}.{key};")
            }
            Step::Meet { meeting } => match meetings[meeting].kind {
                Kind::Fence => "cmd=kvs-fence;".to_owned(),
                Kind::Ring => {
                    format!("cmd=ring;ring-count=1;ring-left=l{rank}.{meeting};ring-right=r{rank}.{meeting};")
                }
                Kind::Group(_) => return None,
            },
            Step::Finalize => "cmd=finalize;".to_owned(),
            Step::End(_) => return None,
        };
        Some(format!("{:6}{body}", body.len()))
    }

    /// Returns the number of replies of a step.
    pub fn replies(&self, step: &Step) -> u32 {
        if matches!(step, Step::Init) && self.protocol == 2 { 2 } else { 1 }
    }
}

/// Returns a value of `len` bytes that begins with the round.
fn value(round: u32, len: usize) -> String {
    let mut value = format!("{round}_");
    value.extend(std::iter::repeat_n('x', len.saturating_sub(value.len())));
    value
}

/// The field of a reply, in either language.
pub fn field<'a>(reply: &'a str, name: &str) -> Option<&'a str> {
    let fields = reply.trim_end().split([' ', ';']);
    fields.filter_map(|field| field.split_once('=')).find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Returns the round of the value in a reply. None for a miss.
pub fn round(reply: &str) -> Option<u32> {
    field(reply, "value")?.split('_').next()?.parse().ok()
}
