//! Tables of jobs and their ranks, on one machine and at the head of several.

mod report;

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut, Range};
use std::rc::Rc;

use hydrant_core::trace::Exit;
use hydrant_core::{JobId, UpcallId};

use crate::exit_status::{ExitStatus, Statuses};
use crate::job_result::{AbortReason, JobResult, Progress, RankFailure, abort_text};
use crate::protocol::{CANCELED, JobRecord, Program, SubmissionId};
pub(crate) use report::lost_line;
pub use report::{EndReport, JobSummary};

/// Most ranks that are listed at a time limit.
const LISTED_MAX: usize = 16;

/// A spawn that waits for its result: the node whose rank asked, and the number of the spawn there.
pub type SpawnKey = (u32, UpcallId);

/// A job that runs, with the state of each rank.
///
/// `R` holds what only one kind of host needs: a launcher and ports where ranks are child processes, the progress of each
/// node at the head of several.
#[derive(Debug)]
pub struct Job<R> {
    /// Number of the job at the PMI server.
    pub id: JobId,
    /// Position among all jobs of the run, or of its submission: 0 is the job of the command line, spawned jobs follow from 1 on.
    pub ordinal: u32,
    /// Job id that clients see.
    pub name: String,
    /// Programs in the order of their `appnum`.
    pub programs: Rc<[Program]>,
    /// Job id of the job whose rank spawned it.
    pub spawner: Option<String>,
    /// Submission of a job of a fleet.
    pub submission: Option<SubmissionId>,
    /// Spawn that waits until all ranks have been started.
    pub spawn: Option<SpawnKey>,
    /// State of the host.
    pub run: R,
    /// Number of rank 0 among the ranks of all jobs.
    first: u32,
    ranks: Vec<RankState>,
    started: u32,
    running: u32,
    result: JobResult,
    canceled: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RankState {
    pid: Option<u32>,
    exit: Option<Exit>,
    requested: Option<u8>,
}

impl<R> Job<R> {
    /// A job none of whose ranks has been started, in [slots](Job::slots) from `first` on.
    pub fn new(record: JobRecord, first: u32, spawn: Option<SpawnKey>, run: R) -> Job<R> {
        let JobRecord { id, ordinal, name, programs, spawned, submitted, .. } = record;
        let size: u32 = programs.iter().map(|program| program.ranks).sum();
        Job {
            id,
            ordinal,
            name,
            programs,
            spawner: spawned.map(|spawned| spawned.spawner),
            submission: submitted.map(|submitted| submitted.id),
            spawn,
            run,
            first,
            ranks: vec![RankState::default(); size as usize],
            started: 0,
            running: 0,
            result: JobResult::default(),
            canceled: None,
        }
    }

    /// Whether it is the job of the command line. A fleet has none.
    pub fn is_of_command_line(&self) -> bool {
        self.ordinal == 0 && self.submission.is_none()
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Numbers of its ranks among the ranks of all jobs. Host tables use them as indices.
    pub fn slots(&self) -> Range<u32> {
        self.first..self.first + self.size()
    }

    /// Number of a rank among the ranks of all jobs.
    pub fn slot(&self, rank: u32) -> u32 {
        self.first + rank
    }

    /// Number and description of the program that a rank runs.
    ///
    /// # Panics
    /// The job has no such rank.
    pub fn program(&self, rank: u32) -> (u32, &Program) {
        let mut end = 0;
        let mut rest = (0..).zip(&*self.programs).skip_while(|(_, program)| {
            end += program.ranks;
            end <= rank
        });
        rest.next().expect("every rank of the job runs a program")
    }

    /// The rank in messages: `rank 3 of spawned job 1`.
    pub fn rank_name(&self, rank: u32) -> String {
        rank_name(self.ordinal, rank)
    }

    /// Records that a rank runs as process `pid`.
    pub fn rank_started(&mut self, rank: u32, pid: u32) {
        self.ranks[rank as usize] = RankState { pid: Some(pid), ..RankState::default() };
        self.started += 1;
        self.running += 1;
    }

    /// Records that the process of a running rank has ended, and the exit code that it had asked to be ended with, if that
    /// is known by now. Returns the exit code if this is the first failure of the job.
    #[must_use]
    pub fn rank_exited(&mut self, rank: u32, exit: Exit, requested: Option<u8>) -> Option<u8> {
        let state = &mut self.ranks[rank as usize];
        state.exit = Some(exit);
        state.requested = state.requested.or(requested);
        self.running -= 1;
        if self.canceled.is_some() {
            return None;
        }
        let exit = state.requested.map_or(exit, Exit::Code);
        let is_first = self.result.rank_exited(rank, exit);
        (is_first && self.spawn.is_none()).then(|| exit.exit_code())
    }

    /// How a rank that has ended counts: with the exit code that it had asked for, or as its process exited. Missing as in
    /// [`rank_exited`](Job::rank_exited) if the job is canceled or has not been started as a whole.
    pub fn counted_exit(&self, rank: u32) -> Option<Exit> {
        let state = self.ranks[rank as usize];
        let exit = state.requested.map(Exit::Code).or(state.exit);
        exit.filter(|_| self.canceled.is_none() && self.spawn.is_none())
    }

    /// Returns the spawn to answer when all ranks have been started, and the exit code of the first rank that has failed
    /// by then. Failures in a spawned job count from here on: if it cannot be started as a whole, its spawner is told
    /// that it does not exist.
    pub fn all_started(&mut self) -> Option<(SpawnKey, Option<u8>)> {
        let spawn = self.spawn.take()?;
        Some((spawn, self.result.first.map(|(_, exit)| exit.exit_code())))
    }

    /// Records that the process of a running rank has ended as the user wanted, which is no failure.
    pub(crate) fn rank_left(&mut self, rank: u32, exit: Exit) {
        self.ranks[rank as usize].exit = Some(exit);
        self.running -= 1;
    }

    /// Records that the host of a running rank is lost.
    pub(crate) fn rank_lost(&mut self, rank: u32) {
        self.ranks[rank as usize].exit = Some(Exit::Lost);
        self.running -= 1;
    }

    /// Records the exit code that a rank asked to be ended with. The first one counts.
    pub fn request_exit(&mut self, rank: u32, code: u8) {
        self.ranks[rank as usize].requested.get_or_insert(code);
    }

    /// The exit code that a rank asked to be ended with.
    pub fn requested_exit(&self, rank: u32) -> Option<u8> {
        self.ranks[rank as usize].requested
    }

    /// Process id of a rank, also after it has ended; `None` if it has not been started.
    pub fn pid(&self, rank: u32) -> Option<u32> {
        self.ranks[rank as usize].pid
    }

    /// How the process of a rank ended.
    pub fn exit(&self, rank: u32) -> Option<Exit> {
        self.ranks[rank as usize].exit
    }

    /// Whether a rank has been started and has not ended.
    pub fn is_running(&self, rank: u32) -> bool {
        let state = self.ranks[rank as usize];
        state.pid.is_some() && state.exit.is_none()
    }

    /// Number of ranks that have been started, including those that have ended.
    pub fn started(&self) -> u32 {
        self.started
    }

    /// Number of ranks that run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Aborts the job and records its exit code. Returns false if it is being aborted or canceled already.
    pub fn abort(&mut self, reason: AbortReason, status: &mut ExitStatus) -> bool {
        if self.is_ending() {
            return false;
        }
        let culprit = match &reason {
            AbortReason::Rank(failure) => Some(failure.cause.rank().0),
            AbortReason::Connected { .. } | AbortReason::Host { .. } | AbortReason::TimeLimit { .. } => None,
        };
        let counted = self.result.first.filter(|_| self.spawn.is_none());
        let exited = counted.filter(|&(rank, _)| Some(rank) == culprit);
        let culprit_ended = culprit.is_some_and(|rank| self.ranks[rank as usize].exit.is_some());
        let finished = self.count_exited(|_| true);
        let running = self.running_ranks();
        let code = self.result.abort(reason, Progress { finished, culprit_ended, running });
        status.record_abort(exited.map(|(_, exit)| exit.exit_code()), code);
        true
    }

    /// Whether the job is being aborted.
    pub fn is_aborted(&self) -> bool {
        self.result.is_aborted()
    }

    /// Cancels a job that cannot be started as a whole. `program` is the number of the program that failed, if only one
    /// did, and `errno` its code. Returns false if the job has been canceled before: then only a program without a code of
    /// its own gets this one.
    pub fn cancel(&mut self, program: Option<u32>, errno: u8) -> bool {
        let first = self.canceled.is_none();
        let programs = self.programs.len();
        let codes = self.canceled.get_or_insert_with(|| vec![CANCELED; programs]);
        match program.and_then(|program| codes.get_mut(program as usize)) {
            Some(code) if *code == CANCELED => *code = errno,
            None if first => codes.fill(errno),
            _ => {}
        }
        first
    }

    /// Whether the job has been canceled.
    pub fn is_canceled(&self) -> bool {
        self.canceled.is_some()
    }

    /// Whether the job is being aborted or has been canceled. It starts no further jobs.
    pub fn is_ending(&self) -> bool {
        self.is_aborted() || self.is_canceled()
    }

    /// Codes of the programs of a job that has not been started as a whole.
    pub fn codes(&self) -> Vec<u8> {
        self.canceled.clone().unwrap_or_else(|| vec![CANCELED; self.programs.len()])
    }

    /// The first ranks that run, and the number of the others.
    fn running_ranks(&self) -> (Vec<u32>, u32) {
        let runs = |state: &RankState| state.pid.is_some() && state.exit.is_none();
        let mut ranks = (0..).zip(&self.ranks).filter(|(_, state)| runs(state)).map(|(rank, _)| rank);
        let first: Vec<u32> = ranks.by_ref().take(LISTED_MAX).collect();
        (first, ranks.count() as u32)
    }

    fn count_exited(&self, which: impl Fn(Exit) -> bool) -> u32 {
        self.ranks.iter().filter(|rank| rank.exit.is_some_and(&which)).count() as u32
    }

    fn count_not_started(&self) -> u32 {
        self.size() - self.started
    }
}

/// All jobs of a run, by their number at the PMI server.
#[derive(Debug)]
pub struct Jobs<R> {
    all: Vec<Option<Job<R>>>,
    count: u32,
    /// Pairs of jobs that fail together, the lower number first.
    connected: BTreeSet<(JobId, JobId)>,
}

impl<R> Default for Jobs<R> {
    fn default() -> Jobs<R> {
        Jobs { all: Vec::new(), count: 0, connected: BTreeSet::new() }
    }
}

impl<R> Jobs<R> {
    /// The lowest free number.
    pub fn free_id(&self) -> JobId {
        let free = self.all.iter().position(Option::is_none);
        JobId(free.unwrap_or(self.all.len()) as u32)
    }

    /// Start of a free stretch of [slots](Job::slots) for so many ranks.
    pub fn free_slots(&self, ranks: u32) -> u32 {
        first_fit(self.iter().map(Job::slots), ranks)
    }

    /// Number of jobs so far, including those that have ended: the ordinal of the next one.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of jobs that run.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether no job runs.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Adds a job in place of the one of that number.
    pub fn insert(&mut self, job: Job<R>) {
        let at = job.id.index();
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        self.all[at] = Some(job);
        self.count += 1;
    }

    /// Removes a job, whose number and slots are free from then on. The jobs that it was connected to stay connected.
    pub fn remove(&mut self, id: JobId) -> Option<Job<R>> {
        let mut others = self.connected_to(id).collect::<Vec<_>>().into_iter();
        self.connected.retain(|&(a, b)| a != id && b != id);
        if let Some(first) = others.next() {
            self.connected.extend(others.map(|other| (first.min(other), first.max(other))));
        }
        self.all.get_mut(id.index())?.take()
    }

    /// Connects or disconnects two jobs. A spawned job and the one that asked for it are connected, as are jobs whose ranks ask for
    /// that.
    pub(crate) fn relate(&mut self, a: JobId, b: JobId, connected: bool) {
        let pair = (a.min(b), a.max(b));
        if !connected {
            self.connected.remove(&pair);
        } else if a != b && self.get(a).is_some() && self.get(b).is_some() {
            self.connected.insert(pair);
        }
    }

    fn connected_to(&self, id: JobId) -> impl Iterator<Item = JobId> {
        self.connected.iter().filter_map(move |&(a, b)| match id {
            _ if id == a => Some(b),
            _ if id == b => Some(a),
            _ => None,
        })
    }

    /// Removes a job that was never started. The next one gets its ordinal.
    pub(crate) fn remove_unopened(&mut self, id: JobId) -> Option<Job<R>> {
        let job = self.remove(id)?;
        self.count -= 1;
        Some(job)
    }

    /// The job of that number.
    pub fn get(&self, id: JobId) -> Option<&Job<R>> {
        self.all.get(id.index())?.as_ref()
    }

    /// The job with that job id.
    pub fn named(&self, name: &[u8]) -> Option<&Job<R>> {
        self.iter().find(|job| job.name.as_bytes() == name)
    }

    /// The job of that number.
    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job<R>> {
        self.all.get_mut(id.index())?.as_mut()
    }

    /// All jobs in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Job<R>> + Clone {
        self.all.iter().flatten()
    }

    /// All jobs in the order of their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job<R>> {
        self.all.iter_mut().flatten()
    }

    /// Numbers of the jobs that fit.
    pub fn ids(&self, fits: impl Fn(&Job<R>) -> bool) -> Vec<JobId> {
        self.iter().filter(|job| fits(job)).map(|job| job.id).collect()
    }

    /// Aborts a job because of one of its ranks, and with it all jobs that may wait for it: those that are connected to it, or to
    /// one of them. Not with the job whose spawn has not been answered yet, because its spawner gets an error, nor without
    /// `cleanup`. Returns the jobs that are aborted now.
    pub fn rank_failed(
        &mut self,
        id: JobId,
        failure: RankFailure,
        cleanup: bool,
        statuses: &mut Statuses,
    ) -> Vec<JobId> {
        let Some(job) = self.get_mut(id) else { return Vec::new() };
        let rank = job.rank_name(failure.cause.rank().0);
        let rank = if job.ordinal == 0 { format!("{rank} of the first job") } else { rank };
        let what = format!("{rank} {}", failure.describe());
        let is_alone = job.spawn.is_some() || !cleanup;
        if !job.abort(AbortReason::Rank(failure), statuses.of_mut(job.submission)) {
            return Vec::new();
        }
        if is_alone {
            return vec![id];
        }
        let mut family = vec![id];
        let mut next = 0;
        while let Some(&member) = family.get(next) {
            let others: Vec<JobId> =
                self.connected_to(member).filter(|other| !family.contains(other)).collect();
            family.extend(others);
            next += 1;
        }
        let mut aborts = |other: &JobId| {
            let job = self.get_mut(*other).filter(|job| job.spawn.is_none());
            job.is_some_and(|job| {
                let status = statuses.of_mut(job.submission);
                job.abort(AbortReason::Connected { what: what.clone() }, status)
            })
        };
        family.retain(|other| *other == id || aborts(other));
        family
    }

    /// Job and rank of a slot.
    pub fn of_slot(&self, slot: u32) -> Option<(&Job<R>, u32)> {
        let job = self.iter().find(|job| job.slots().contains(&slot))?;
        Some((job, slot - job.first))
    }
}

/// For numbers that are known to be in use.
impl<R> Index<JobId> for Jobs<R> {
    type Output = Job<R>;

    fn index(&self, id: JobId) -> &Job<R> {
        self.get(id).expect("the job's number is in use")
    }
}

impl<R> IndexMut<JobId> for Jobs<R> {
    fn index_mut(&mut self, id: JobId) -> &mut Job<R> {
        self.get_mut(id).expect("the job's number is in use")
    }
}

/// Start of the first free stretch of `len` numbers beside those in use.
pub fn first_fit(used: impl Iterator<Item = Range<u32>> + Clone, len: u32) -> u32 {
    let starts = std::iter::once(0).chain(used.clone().map(|used| used.end));
    let is_free = |start: &u32| {
        let end = start.saturating_add(len);
        used.clone().all(|used| *start >= used.end || end <= used.start)
    };
    starts.filter(is_free).min().expect("all numbers above the highest one in use are free")
}

/// A rank of the job of that ordinal in messages: `rank 3 of spawned job 1`.
pub(crate) fn rank_name(ordinal: u32, rank: u32) -> String {
    match ordinal {
        0 => format!("rank {rank}"),
        ordinal => format!("rank {rank} of spawned job {ordinal}"),
    }
}

/// What is printed about a rank that asked to be ended alone: `rank 3 aborted itself with code 2: MESSAGE`.
pub fn self_abort_line(rank_name: &str, code: u8, message: &str) -> String {
    format!("{rank_name} aborted itself with code {code}{}", abort_text(message))
}

#[cfg(test)]
mod tests {
    use hydrant_core::Rank;
    use std::time::Duration;

    use hydrant_core::trace::Cause;

    use super::*;
    use crate::job_result::{RankFailure, RanksInState};
    use crate::psets::RankRanges;
    use crate::tests::{program, record};

    fn job(size: u32) -> Job<()> {
        let mut job = Job::new(record(0, 0, &[size]), 10, None, ());
        (0..size).for_each(|rank| job.rank_started(rank, 100 + rank));
        job
    }

    fn lines(job: &Job<()>) -> String {
        match job.describe_end(&ExitStatus::default(), false, |_| "n1") {
            Some(EndReport::Lines(lines)) => lines,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_failure_is_described() {
        let mut job = job(3);
        assert_eq!(job.rank_exited(0, Exit::Code(0), None), None);
        assert_eq!(job.describe_end(&ExitStatus::default(), false, |_| "n1"), None);
        assert_eq!(job.rank_exited(2, Exit::Signal(11), None), Some(139));
        assert_eq!(job.rank_exited(1, Exit::Code(2), None), None);
        assert_eq!(
            lines(&job),
            "rank 2 on n1, pid 102, program a.out died by SIGSEGV, and 1 more rank failed"
        );
    }

    #[test]
    fn a_loss_is_described_while_others_go_on() {
        let mut job = job(2);
        let mut status = ExitStatus::default();
        assert_eq!(job.describe_loss(1, &status, "n1"), None, "it runs");
        assert_eq!(job.rank_exited(1, Exit::Signal(11), None), Some(139));
        let line = "rank 1 on n1, pid 101, program a.out died by SIGSEGV; the other ranks go on";
        assert_eq!(job.describe_loss(1, &status, "n1").as_deref(), Some(line));
        let _ = status.record_signal(libc::SIGTERM);
        assert_eq!(job.describe_loss(1, &status, "n1"), None, "the user ends the run");
        assert_eq!(job.rank_exited(0, Exit::Code(1), None), None);
        assert_eq!(job.describe_loss(0, &ExitStatus::default(), "n1"), None, "no other rank is left");
    }

    #[test]
    fn a_time_limit_lists_states_in_bounded_length() {
        let mut job = job(200);
        let state = |state: &str, ranks: RankRanges| RanksInState { state: state.to_owned(), ranks };
        let states = vec![
            state("in fence 2 for 3.1 s", (0..100).map(|pair| (2 * pair, 1)).collect()),
            state("initialized", (0..100).map(|pair| (2 * pair + 1, 1)).collect()),
        ];
        let limit = Duration::from_secs(60);
        assert!(job.abort(AbortReason::TimeLimit { limit, states }, &mut ExitStatus::default()));
        let lines = lines(&job);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 1 + LISTED_MAX + 1 + 2 + 1);
        assert_eq!(lines[1], "  rank 0 on n1, pid 100, program a.out, in fence 2 for 3.1 s");
        assert_eq!(lines[2], "  rank 1 on n1, pid 101, program a.out, initialized");
        assert_eq!(
            lines[18..],
            [
                "  100 ranks in fence 2 for 3.1 s: 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30 and others",
                "  100 ranks initialized: 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 and others",
                "  200 ranks were ended",
            ]
        );
    }

    #[test]
    fn a_requested_exit_code_replaces_the_exit() {
        let mut job = job(1);
        job.request_exit(0, 7);
        job.request_exit(0, 8);
        assert_eq!(job.rank_exited(0, Exit::Signal(15), None), Some(7));
        assert_eq!(lines(&job), "rank 0 on n1, pid 100, program a.out aborted itself with code 7");
    }

    #[test]
    fn an_abort_names_the_rank_and_counts_the_others() {
        let mut job = job(4);
        assert_eq!(job.rank_exited(3, Exit::Code(0), None), None);
        let cause = Cause::Abort { rank: Rank(1), code: Some(5) };
        let reason = || AbortReason::Rank(RankFailure { cause, message: "bad input".into() });
        let mut status = ExitStatus::default();
        assert!(job.abort(reason(), &mut status) && !job.abort(reason(), &mut status));
        assert_eq!(status.code(), 5);
        assert_eq!(
            lines(&job),
            "rank 1 aborted the job with code 5: bad input\n  rank 1 on n1, pid 101, program a.out\n  2 other ranks were \
             ended, 1 other rank had ended before"
        );
        let what = "host n2 (node 2): its daemon is lost".to_owned();
        let mut lost = self::job(4);
        lost.rank_lost(0);
        assert!(lost.abort(AbortReason::Host { what, ranks: 1, below: 2 }, &mut status));
        assert_eq!(
            lines(&lost),
            "host n2 (node 2): its daemon is lost\n  1 rank was running there and on the 2 hosts below it, 3 other ranks \
             were ended"
        );
    }

    /// With a board the request arrives over another connection than the exit.
    // Fault: A rank aborts and dies by a signal, and its exit arrives before the abort
    // Outcome: the exit code is the abort's
    // Guarantee: Report and exit code name the same failure
    #[test]
    fn an_abort_that_arrives_after_the_exit_of_its_rank_gives_the_exit_code() {
        let mut job = job(3);
        let mut status = ExitStatus::default();
        job.rank_exited(1, Exit::Signal(11), None).into_iter().for_each(|code| status.record_failure(code));
        assert_eq!(status.code(), 139);
        let cause = Cause::Abort { rank: Rank(1), code: Some(5) };
        let reason = AbortReason::Rank(RankFailure { cause, message: String::new() });
        assert!(job.abort(reason, &mut status));
        assert_eq!(status.code(), 5);
        assert_eq!(
            lines(&job),
            "rank 1 aborted the job with code 5\n  rank 1 on n1, pid 101, program a.out\n  2 other ranks were ended"
        );
    }

    #[test]
    fn the_failure_of_another_rank_comes_first() {
        let mut job = job(3);
        let mut status = ExitStatus::default();
        job.rank_exited(2, Exit::Code(3), None).into_iter().for_each(|code| status.record_failure(code));
        let cause = Cause::Abort { rank: Rank(1), code: Some(5) };
        let reason = AbortReason::Rank(RankFailure { cause, message: String::new() });
        assert!(job.abort(reason, &mut status));
        assert_eq!(status.code(), 3);
    }

    #[test]
    fn a_signal_of_the_user_is_the_reason() {
        let mut job = job(1);
        let mut status = ExitStatus::default();
        assert!(!status.record_signal(libc::SIGTERM));
        assert_eq!(job.rank_exited(0, Exit::Signal(libc::SIGTERM as u8), None), Some(143));
        assert_eq!(job.describe_end(&status, false, |_| "n1"), Some(EndReport::Interrupted(libc::SIGTERM)));
    }

    #[test]
    fn a_reader_that_has_read_enough_is_no_failure_to_report() {
        let mut job = job(1);
        assert_eq!(job.rank_exited(0, Exit::Signal(libc::SIGPIPE as u8), None), Some(141));
        assert_eq!(job.describe_end(&ExitStatus::default(), true, |_| "n1"), None);
        assert_eq!(lines(&job), "rank 0 on n1, pid 100, program a.out died by SIGPIPE");
    }

    #[test]
    fn a_canceled_job_is_not_reported() {
        let mut job = Job::new(record(0, 1, &[1, 2]), 0, None, ());
        assert_eq!(job.codes(), [CANCELED, CANCELED]);
        job.rank_started(0, 5);
        assert!(job.cancel(Some(1), 2) && !job.cancel(None, 3) && !job.cancel(Some(1), 3));
        assert_eq!(job.codes(), [CANCELED, 2]);
        assert!(!job.cancel(Some(0), 13));
        assert_eq!(job.codes(), [13, 2], "another node names another program");
        assert_eq!(job.rank_exited(0, Exit::Signal(9), None), None);
        assert_eq!(job.describe_end(&ExitStatus::default(), false, |_| "n1"), None);
        let mut whole = Job::new(record(0, 1, &[1, 2]), 0, None, ());
        assert!(whole.cancel(Some(9), 28));
        assert_eq!(whole.codes(), [28, 28], "a program that the job does not have");
    }

    #[test]
    fn numbers_and_slots_are_used_again() {
        let mut jobs = Jobs::default();
        for size in [2, 3, 4] {
            let (id, first) = (jobs.free_id(), jobs.free_slots(size));
            jobs.insert(Job::new(record(id.0, jobs.count(), &[size]), first, None, ()));
        }
        assert_eq!(jobs[JobId(2)].slots(), 5..9);
        jobs.remove(JobId(1));
        assert_eq!((jobs.free_id(), jobs.free_slots(3), jobs.free_slots(4)), (JobId(1), 2, 9));
        assert_eq!(jobs.of_slot(6).map(|(job, rank)| (job.id, rank)), Some((JobId(2), 1)));
        assert!(jobs.of_slot(3).is_none());
        assert_eq!((jobs.count(), jobs.len()), (3, 2));
    }

    /// Jobs 0 to 3, each spawned by the one before.
    fn chain() -> Jobs<()> {
        let mut jobs = Jobs::default();
        for id in 0..4 {
            jobs.insert(Job::new(record(id, id, &[1]), id, None, ()));
            jobs[JobId(id)].rank_started(0, 100 + id);
            if id > 0 {
                jobs.relate(JobId(id), JobId(id - 1), true);
            }
        }
        jobs
    }

    fn fails(mut jobs: Jobs<()>, id: u32) -> Vec<u32> {
        let cause = Cause::Died { rank: Rank(0), exit: Exit::Signal(9) };
        let failure = RankFailure { cause, message: String::new() };
        let mut ended = jobs.rank_failed(JobId(id), failure, true, &mut Statuses::default());
        ended.sort_unstable();
        ended.into_iter().map(|id| id.0).collect()
    }

    // Fault: A rank fails in a job that has disconnected from the one that spawned it (`PMI2_Job_Disconnect`,
    // `PMIx_Disconnect`, `MPI_Comm_disconnect` of Open MPI), or its spawner fails then
    // Outcome: the job that failed ends, with those that are connected to it; the others go on
    // Guarantee: Jobs fail together as long as they are connected, directly or by others
    // Also: launch `dynamic::jobs_that_have_disconnected_fail_alone`, libraries
    // `interop::openmpi::jobs_that_have_disconnected_fail_alone`, `pmi2::nodes::jobs_that_have_disconnected_fail_alone`
    #[test]
    fn connected_jobs_fail_together() {
        assert_eq!(fails(chain(), 3), [0, 1, 2, 3]);
        let parted = || {
            let mut jobs = chain();
            jobs.relate(JobId(2), JobId(1), false);
            jobs
        };
        assert_eq!((fails(parted(), 0), fails(parted(), 3)), (vec![0, 1], vec![2, 3]));
        let mut again = parted();
        again.relate(JobId(3), JobId(0), true);
        assert_eq!(fails(again, 1), [0, 1, 2, 3]);
    }

    #[test]
    fn jobs_stay_connected_when_the_one_between_them_has_ended() {
        let mut jobs = chain();
        jobs.remove(JobId(1));
        jobs.remove(JobId(2));
        assert_eq!(fails(jobs, 3), [0, 3]);
    }

    #[test]
    fn ranks_run_programs_in_order() {
        let mut record = record(0, 2, &[2, 1]);
        record.programs = [program(2), Program { command: "b.out".into(), ..program(1) }].into();
        let job = Job::new(record, 0, None, ());
        assert_eq!([0, 1, 2].map(|rank| job.program(rank).0), [0, 0, 1]);
        assert_eq!(
            (job.program(2).1.command.to_str(), job.rank_name(2)),
            (Some("b.out"), "rank 2 of spawned job 2".into())
        );
    }

    #[test]
    fn a_rank_that_ends_alone_is_named_with_its_message() {
        assert_eq!(self_abort_line("rank 1", 2, ""), "rank 1 aborted itself with code 2");
        assert_eq!(
            self_abort_line(&rank_name(3, 1), 2, "no"),
            "rank 1 of spawned job 3 aborted itself with code 2: no"
        );
    }
}
