//! State of jobs, ranks, connections and pending replies.

mod conn;
mod job;
mod reply;

#[cfg(feature = "pmix")]
pub(crate) use conn::Dialect;
pub(crate) use conn::{Conn, Phase};
#[cfg(feature = "pmix")]
pub(crate) use conn::{Got, Registration};
pub(crate) use job::{Abort, Job, RankPhase, RankSlot, RingPart};
#[cfg(feature = "pmix")]
pub(crate) use reply::Wanted;
pub(crate) use reply::{Attr, PendingReply, PmixResponse, ReplyState, Response};
