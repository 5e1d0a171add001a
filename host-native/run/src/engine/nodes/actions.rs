//! Adapter of the head: events of links go in, actions are carried out.

use hydrant_control::protocol::{JobRecord, RankBlock, StartError};
use hydrant_control::{Action, Destination, Event as HeadEvent, RequestId, Upcall};
use hydrant_core::{Fault, Input, JobId, OwnedInput, Rank, Refusal, Time, UpcallId};
use hydrant_driver::BackendError;
use hydrant_iof::SinkId;
use hydrant_overlay::{Channel, Destination as Route, Event};
use hydrant_reactor::WriterState;

use super::{Engine, Nodes};
use crate::error::RunError;

impl Engine<'_, '_> {
    /// Handles an event of the links at the head.
    pub(super) fn link_event_at_head(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Complete => self.handle_at_head(HeadEvent::AllJoined)?,
            Event::Joined { node } => {
                self.progress.iter_mut().for_each(|progress| progress.hosts += 1);
                self.handle_at_head(HeadEvent::Joined { node })?;
            }
            Event::Message { from, channel: Channel::Control, body, .. } => {
                self.handle_at_head(HeadEvent::Message { node: from, bytes: &body })?;
            }
            Event::Message { via, from, body, .. } => self.take_output(via, from, &body)?,
            Event::Failed(failure) => {
                let Some(nodes) = &self.nodes else { return Ok(()) };
                let lost = nodes.links.tree().subtree(failure.node);
                let hint = failure.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                let reason = format!("{failure}{hint}");
                self.handle_at_head(HeadEvent::NodesLost { nodes: lost, reason })?;
            }
            Event::Retrying(failure) => self.sinks.print(&failure.to_string()),
            Event::CreditAvailable { .. } => self.send_files()?,
            // The head has no parent.
            Event::LifelineLost(_) | Event::Shutdown | Event::Closed => {}
        }
        self.outputs()
    }

    /// Passes an event to the head and executes its actions. Does nothing where the head is another process.
    pub(in super::super) fn handle_at_head(&mut self, event: HeadEvent<'_>) -> Result<(), RunError> {
        self.answer(event)?;
        self.carry_out_actions()
    }

    /// Passes an event to the head while its actions are being executed.
    pub(in super::super) fn answer(&mut self, event: HeadEvent<'_>) -> Result<(), RunError> {
        let now = self.now();
        match &mut self.head {
            Some(head) => Ok(head.control.handle(now, event)?),
            None => Ok(()),
        }
    }

    /// Executes the actions of the head.
    pub(in super::super) fn carry_out_actions(&mut self) -> Result<(), RunError> {
        while let Some(action) = self.head.as_mut().and_then(|head| head.control.poll()) {
            self.carry_out(action)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, action: Action) -> Result<(), RunError> {
        let now = self.now();
        match action {
            Action::Send { to, order } => {
                let to = match to {
                    Destination::All => Route::Descendants,
                    Destination::Node(node) => Route::Node(node),
                };
                self.send_order(now, to, order);
            }
            Action::OpenJob { record } => self.open_at_head(*record)?,
            Action::RankStarted { job, rank, pid } => {
                // A rank of this process has its files before its first output.
                if self.jobs.get(job).is_some_and(|job| !job.run.ranks.contains(rank.0)) {
                    self.open_pid_files(job, rank.0, pid)?;
                }
                self.show_debuggers(job);
            }
            Action::RanksJoined { ranks, .. } => self.count_joined(ranks),
            Action::ResolveSpawn { request, spawner, upcall } => {
                self.resolve_spawn(request, &spawner, (upcall.protocol, &upcall.request))?;
            }
            Action::Apply { request, input } => {
                self.apply(request, input.view())?;
                if let OwnedInput::Connected { other, connected, job } = input {
                    let jobid = self.head.as_ref().and_then(|head| head.control.jobs().get(other));
                    if let Some(jobid) = jobid.map(|job| job.name.clone()) {
                        self.relate_at_name_service((job, Rank(0)), &jobid, connected)?;
                    }
                }
            }
            Action::CallNameService { request, upcall } => {
                let Upcall { job, rank, protocol, request: body, .. } = upcall;
                self.ask_name_service(Some(UpcallId(request.0)), (job, rank), (protocol, body))?;
            }
            Action::AnswerQuery { request, upcall } => self.answer_pmix_query(request, upcall)?,
            Action::CancelLookups { job, rank } => self.drop_lookups(job, rank)?,
            Action::DrainOutput { job } => self.drain_at_head(job),
            Action::DeregisterJob { job } => self.drop_job(job)?,
            Action::CloseJob { .. } => {
                let ended = self.head.as_mut().and_then(|head| head.control.take_ended());
                ended.into_iter().for_each(|summary| self.record_end(summary));
                self.flush();
            }
            Action::AllowStdin(bytes) => self.stdin.allow(bytes, now, &self.poller),
            Action::FormTree { are_linked } => self.form_tree(are_linked)?,
            Action::SendFiles => {
                self.head.iter_mut().for_each(|head| head.files.want());
                self.send_files()?;
            }
            Action::CloseStdin => {
                let closed = self.stdin.close(&self.poller);
                closed.map_err(RunError::system("cannot let go of standard input"))?;
            }
            Action::RankStates { node, query, body } => {
                self.rank_states_arrived(node, query, &body);
                self.finish_pmix_queries()?;
            }
            Action::ServerReplaced { node, result } => self.server_replaced(node, result),
            Action::Print(lines) => self.sinks.print(&lines),
            Action::Finish { flush } => {
                if let Some(head) = &mut self.head {
                    head.finish = Some(flush);
                }
            }
        }
        Ok(())
    }

    /// Sends program files as long as all children take them.
    fn send_files(&mut self) -> Result<(), RunError> {
        let now = self.now();
        while let Some(nodes) = &mut self.nodes {
            if !nodes.children_have_credit() {
                return Ok(());
            }
            let Some(head) = &mut self.head else { return Ok(()) };
            let Some(piece) = head.files.next_piece()? else { return Ok(()) };
            nodes.send(now, Route::Descendants, Channel::Stream, &piece);
        }
        Ok(())
    }

    /// Opens a job at the PMI server of this process, for the ranks of a node in this process and the output of all others.
    ///
    /// # Errors
    /// The job of the command line cannot be opened, or the plugin has failed.
    fn open_at_head(&mut self, record: JobRecord) -> Result<(), RunError> {
        let (job, is_first) = (record.id, record.ordinal == 0);
        let event = match self.open_here(record) {
            Ok(()) => HeadEvent::JobOpened { job },
            Err(mut errors) => match errors.swap_remove(0) {
                (_, error) if is_first || error.is_plugins() => return Err(error),
                (appnum, error) => HeadEvent::OpenFailed { job, error: start_error(appnum, &error) },
            },
        };
        self.answer(event)
    }

    /// Applies a rank's request to the PMI server of the head.
    fn apply(&mut self, request: RequestId, input: Input<'_>) -> Result<(), RunError> {
        let now = Time(self.now());
        let result = match self.core.handle(now, input) {
            Ok(_) => Ok(()),
            Err(BackendError::Fault(Fault::Refused(why))) => Err(why),
            Err(BackendError::Fault(Fault::BadPset)) => Err(Refusal::BadGroup),
            Err(BackendError::Fault(Fault::NoSuchJob)) => Err(Refusal::NoJob),
            Err(error) => return Err(error.into()),
        };
        self.answer(HeadEvent::BackendReply { request, result })
    }

    /// Writes the rest of the output of a job all of whose ranks have ended. Streams of ranks here have ended by now.
    fn drain_at_head(&mut self, id: JobId) {
        let now = self.now();
        let Some(head) = &mut self.head else { return };
        head.draining.push(id);
        let Some(job) = self.jobs.get(id) else { return };
        let (sinks, poller) = (&mut self.sinks, &self.poller);
        self.streams.finish(job.slots(), now, &mut self.buffer, sinks, poller);
        self.flush();
    }

    /// Reports jobs whose output has been written. Returns true if the run is over and all daemons have ended.
    pub(in super::super) fn settle_head(&mut self) -> Result<bool, RunError> {
        let Some(head) = &mut self.head else { return Ok(self.are_links_over()) };
        for job in std::mem::take(&mut head.draining) {
            // Streams of ranks end at their nodes, so the head has nothing left to read.
            let reader_closed = self.sinks.is_cut_off();
            self.handle_at_head(HeadEvent::OutputDrained { job, reader_closed })?;
        }
        self.outputs()?;
        if !self.losses_reported && self.head.as_ref().is_some_and(|head| head.control.is_over()) {
            self.report_losses()?;
            self.flush();
        }
        let is_written = self.sinks.are_empty();
        let finish = self.head.as_ref().and_then(|head| head.finish);
        Ok(finish.is_some_and(|flush| !flush || is_written) && self.end_links())
    }

    /// Writes output of a rank on another node.
    fn take_output(&mut self, via: u32, from: u32, body: &[u8]) -> Result<(), RunError> {
        let now = self.now();
        let (Some(head), Some(Nodes { links, .. })) = (&mut self.head, &mut self.nodes) else {
            return Ok(());
        };
        let len = body.len() as u32;
        let chunk = head.control.decode_output(from, body)?;
        let Some((chunk, job)) = chunk.and_then(|chunk| Some((chunk, self.jobs.get(chunk.job)?))) else {
            links.consumed(via, len);
            return Ok(());
        };
        let slot = job.slot(chunk.rank.0);
        let stream = 2 * slot + u32::from(chunk.stderr);
        let sink = self.streams.arrived(stream, now, chunk.bytes, &mut self.sinks);
        head.unacknowledged.push((sink, via, len));
        Ok(())
    }

    /// Acknowledges output whose sink has room or has ended, so that the nodes send more.
    pub(in super::super) fn acknowledge_output(&mut self) {
        let (Some(head), Some(Nodes { links, .. })) = (&mut self.head, &mut self.nodes) else { return };
        let sinks = &self.sinks;
        head.unacknowledged.retain(|&(sink, via, len)| {
            let waits = sinks.get(sink).is_full() && sinks.get(sink).state() == WriterState::Open;
            if !waits {
                links.consumed(via, len);
            }
            waits
        });
    }

    /// Handles a changed sink. If it accepts no more output, the ranks that write to it get the error of a closed pipe.
    pub(in super::super) fn sink_changed(&mut self, sink: SinkId) {
        let now = self.now();
        let Some(head) = &mut self.head else { return };
        if self.sinks.get(sink).state() == WriterState::Open {
            return;
        }
        for job in self.jobs.iter() {
            let slots = job.slots();
            let first = slots.start;
            let rank = |stream: u32| (Rank(stream / 2 - first), stream % 2 == 1);
            let streams = self.streams.to_sink(slots, sink).into_iter().map(rank);
            // Streams of ranks here see the sink themselves.
            let streams = streams.filter(|(rank, _)| !job.run.ranks.contains(rank.0)).collect();
            let handled = head.control.handle(now, HeadEvent::OutputClosed { job: job.id, streams });
            debug_assert!(handled.is_ok(), "only reports and new jobs can be invalid: {handled:?}");
        }
    }
}

/// Error of a start, as the head and its daemons exchange it.
pub(super) fn start_error(appnum: Option<u32>, error: &RunError) -> StartError {
    StartError {
        appnum,
        code: error.exit_code(),
        errno: error.errno(),
        limit: error.limit(),
        text: error.with_hint(),
    }
}

/// Ranks of a job map, in ascending order.
pub(super) fn blocks_of(job_map: &hydrant_placement::JobMap) -> Vec<RankBlock> {
    let of_node = |(number, node): (u32, &hydrant_placement::Node)| {
        let block = |range: &hydrant_placement::RankRange| RankBlock {
            node: number,
            first: range.first,
            count: range.count,
        };
        node.rank_ranges.iter().map(block).collect::<Vec<_>>()
    };
    let mut blocks: Vec<RankBlock> = (1..).zip(job_map.nodes()).flat_map(of_node).collect();
    blocks.sort_unstable_by_key(|block| block.first);
    blocks
}
