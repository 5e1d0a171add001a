//! Adapter of the head: events of links go in, actions are carried out.

use std::ops::Range;

use hydrant_control::protocol::{JobRecord, RankBlock, StartError};
use hydrant_control::{Action, Destination, Event, RequestId, Upcall};
use hydrant_core::{Fault, Input, JobId, OwnedInput, OwnedOutput, Rank, Refusal, Time, UpcallId};
use hydrant_driver::BackendError;
use hydrant_overlay::{Channel, Destination as Route, Event as LinkEvent};

use super::super::fleet::Fleet;
use super::super::names::Names;
use super::super::patience::Patience;
use super::super::progress::Progress;
use super::super::status::Asker;
use super::super::{Engine, Head};
use crate::enrol::turned_away;
use crate::error::RunError;
use crate::fleet::protocol::Reply;
use crate::plan::Plan;

impl Head {
    /// Handles an event of the links.
    pub(in super::super) fn take_link_event(
        &mut self,
        engine: &mut Engine<'_>,
        event: LinkEvent,
    ) -> Result<(), RunError> {
        match event {
            LinkEvent::Complete => {
                self.profile.iter_mut().for_each(|profile| profile.all_joined(engine.now()));
                self.handle(engine, Event::AllJoined)
            }
            LinkEvent::Joined { node } => {
                self.progress.iter_mut().for_each(Progress::host_joined);
                self.profile.iter_mut().for_each(|profile| profile.host_joined(engine.now(), node));
                self.handle(engine, Event::Joined { node })
            }
            LinkEvent::Message { from, channel: Channel::Control, body, .. } => {
                self.handle(engine, Event::Message { node: from, bytes: &body })
            }
            LinkEvent::Message { via, from, body, .. } => self.take_rank_output(engine, (via, from), &body),
            LinkEvent::Failed(failure) => {
                let lost = engine.nodes.as_ref().map(|nodes| nodes.links.tree().subtree(failure.node));
                let hint = failure.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                let reason = format!("{failure}{hint}");
                let nodes = lost.unwrap_or_default();
                self.nodes_gone(engine, &nodes)?;
                self.handle(engine, Event::NodesLost { nodes, reason })
            }
            LinkEvent::Applied { applicant, application, addr } => {
                self.host_applied(engine, applicant, &application, addr)
            }
            LinkEvent::Turned { addr, why } => {
                engine.sinks.print(&turned_away(addr, &why));
                Ok(())
            }
            LinkEvent::Left { node } => {
                self.nodes_gone(engine, &(node..node + 1))?;
                self.handle(engine, Event::NodeEnded { node })
            }
            LinkEvent::Retrying(failure) => {
                engine.sinks.print(&failure.to_string());
                Ok(())
            }
            LinkEvent::CreditAvailable { .. } => self.send_files(engine),
            // The head has no parent.
            LinkEvent::LifelineLost(_) | LinkEvent::Shutdown | LinkEvent::Closed => Ok(()),
        }
    }

    /// Nodes are lost or have left: nothing that they were asked for is awaited.
    fn nodes_gone(&mut self, engine: &mut Engine<'_>, nodes: &Range<u32>) -> Result<(), RunError> {
        engine.relays_gone(nodes);
        self.pushes_gone(engine, nodes)?;
        self.replacement_over_at(engine, nodes);
        self.rank_states_gone(engine, nodes);
        self.pmix_queries.nodes_gone(nodes);
        self.finish_pmix_queries(engine)
    }

    /// Handles an output of the head's own PMI server, whose clients are no ranks.
    pub(in super::super) fn take_output(
        &mut self,
        engine: &mut Engine<'_>,
        output: OwnedOutput,
    ) -> Result<(), RunError> {
        match output {
            OwnedOutput::Upcall { upcall, .. } => engine.refuse_upcall(upcall),
            output => self.handle(engine, Event::Output(output)),
        }
    }

    /// Applies an event and executes the actions that follow.
    pub(in super::super) fn handle(
        &mut self,
        engine: &mut Engine<'_>,
        event: Event<'_>,
    ) -> Result<(), RunError> {
        self.answer(engine, event)?;
        self.carry_out(engine)
    }

    /// Applies an event while actions are being executed.
    pub(in super::super) fn answer(&mut self, engine: &Engine<'_>, event: Event<'_>) -> Result<(), RunError> {
        Ok(self.control.handle(engine.now(), event)?)
    }

    /// Executes the actions.
    fn carry_out(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        while let Some(action) = self.control.poll() {
            self.carry_out_action(engine, action)?;
        }
        Ok(())
    }

    fn carry_out_action(&mut self, engine: &mut Engine<'_>, action: Action) -> Result<(), RunError> {
        let now = engine.now();
        match action {
            Action::Send { to, order } => {
                let to = match to {
                    Destination::All => Route::Descendants,
                    Destination::Node(node) => Route::Node(node),
                };
                engine.send_order(to, order);
            }
            Action::OpenJob { record } => self.open_job(engine, *record)?,
            Action::RankStarted { job, rank, pid } => {
                // A rank of this process has its files before its first output.
                if engine.jobs.get(job).is_some_and(|job| !job.run.ranks.contains(rank.0)) {
                    engine.open_pid_files(job, rank.0, pid)?;
                }
                self.tell_process(job, rank.0, pid);
                self.show_debuggers(engine, job);
            }
            Action::RanksJoined { ranks, .. } => {
                self.progress.iter_mut().for_each(|progress| progress.ranks_joined(ranks, now));
            }
            Action::ResolveSpawn { request, spawner, upcall } => {
                self.resolve_spawn(engine, request, &spawner, (upcall.protocol, &upcall.request))?;
            }
            Action::FirstJobWaits => self.attach_debugger(engine)?,
            Action::AnswerTool { upcall, started, limit, codes } => {
                self.answer_spawn_of_tool(engine, upcall, started, (limit, &codes))?;
            }
            Action::Apply { request, input } => {
                self.apply(engine, request, input.view())?;
                if let OwnedInput::Connected { other, connected, job } = input {
                    self.relate_at_name_service(engine, (job, Rank(0)), other, connected)?;
                }
            }
            Action::ChangeMembership(input) => {
                engine.core.handle(Time(now), input.view())?;
            }
            Action::StartDaemon { node, host } => self.start_daemon(engine, node, &host)?,
            Action::IncludeNode { node } => {
                engine.nodes.iter_mut().for_each(|nodes| nodes.include(node));
            }
            Action::DismissNode { node } => {
                engine.nodes.iter_mut().for_each(|nodes| nodes.dismiss(node, now, &engine.poller));
            }
            Action::HostChanged { request, host, result } => {
                self.host_changed(engine, request, &host, result)?;
            }
            Action::CallNameService { request, upcall } => {
                let Upcall { job, rank, protocol, request: body, .. } = upcall;
                self.ask_name_service(engine, Some(UpcallId(request.0)), (job, rank), (protocol, body))?;
            }
            Action::AnswerQuery { request, upcall } => {
                self.take_host_call(engine, Asker::Rank(request), upcall)?;
            }
            Action::CancelLookups { job, rank } => {
                if let Some(names) = &mut self.names {
                    names.process_ended(job, rank, now)?;
                }
            }
            Action::DrainOutput { job } => self.drain(engine, job),
            Action::DeregisterJob { job } => {
                // Tools and clients get the output of a job before the event of its end.
                self.copy_output(engine);
                self.forward_to_clients(engine);
                engine.drop_job(job)?;
                if let Some(names) = &mut self.names {
                    names.forget(job, now)?;
                }
            }
            Action::CloseJob { job, submission, summary } => {
                self.tool_job_ended(engine, job);
                let profile =
                    self.profile.as_mut().and_then(|profile| profile.job_ended(&self.control, &summary));
                if let Some(profile) = profile {
                    engine.sinks.print(&profile.text());
                    self.result.add_profile(profile);
                }
                match submission {
                    Some(submission) => self.tell_end(submission, summary),
                    None => self.result.job_ended(None, *summary),
                }
                engine.flush();
            }
            Action::AllowStdin(bytes) => engine.stdin.allow(bytes, now, &engine.poller),
            Action::FormTree { are_linked } => engine.form_tree(are_linked)?,
            Action::SendFiles => {
                self.files.want();
                self.send_files(engine)?;
            }
            Action::CloseStdin => {
                let closed = engine.stdin.close(&engine.poller);
                closed.map_err(RunError::system("cannot let go of standard input"))?;
            }
            Action::Profile { node, job, body } => {
                if let Some(profile) = &mut self.profile {
                    profile.take(&self.control, (node, job), &body);
                }
            }
            Action::RankStates { node, query, body } => {
                self.rank_states_arrived(engine, (node, query), &body);
                self.finish_pmix_queries(engine)?;
            }
            Action::Usage { node, query, body } => {
                self.pmix_queries.usage_arrived(node, query, &body);
                self.finish_pmix_queries(engine)?;
            }
            Action::InputPushed { node, push, is_taken } => {
                self.input_pushed(engine, (node, push), is_taken)?;
            }
            Action::RelayTool { node, number, relayed } => {
                self.take_relayed(engine, (node, number), relayed)?;
            }
            Action::ServerReplaced { node, result } => self.server_replaced(engine, node, result),
            Action::Print(lines) => engine.sinks.print(&lines),
            Action::Tell { submission, lines } => self.tell_user(engine, Some(submission), lines),
            Action::FleetReady => self.fleet_is_ready(engine)?,
            Action::SubmissionWaits { submission, before } => {
                self.tell_client(submission, &Reply::Waits(before));
            }
            Action::SubmissionStarted { submission } => self.tell_client(submission, &Reply::Started),
            Action::SubmissionRefused { submission, why } => {
                let is_open = self.control.is_open();
                self.submission_over(engine, submission, &Reply::Refused { why, is_open });
            }
            Action::SubmissionOver { submission, code } => {
                self.submission_over(engine, submission, &Reply::Over(code));
            }
            Action::Finish { flush } => self.finish = Some(flush),
        }
        Ok(())
    }

    /// Sends program files as long as all children take them.
    fn send_files(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        let now = engine.now();
        while let Some(nodes) = &mut engine.nodes
            && nodes.links.children_have_credit()
        {
            let Some(piece) = self.files.next_piece()? else { return Ok(()) };
            nodes.send(now, Route::Descendants, Channel::Stream, &piece);
        }
        Ok(())
    }

    /// Opens a job at the PMI server of this process, for the ranks of a node in this process and the output of all others.
    ///
    /// # Errors
    /// The job of the command line cannot be opened, or the plugin has failed.
    fn open_job(&mut self, engine: &mut Engine<'_>, record: JobRecord) -> Result<(), RunError> {
        let (job, is_first) = (record.id, record.is_of_command_line());
        if let Some(profile) = self.profile.as_mut().filter(|_| is_first) {
            profile.first_job_opened(engine.now());
        }
        self.describe_to_client(&record);
        let of_tool = record.spawned.as_ref().filter(|spawned| spawned.tool.is_some());
        if let Some(spawned) = of_tool {
            self.name_tool_job(spawned.upcall, &record);
        }
        let event = match engine.open_here(record, None) {
            Ok(()) => {
                self.introduce(engine, job);
                self.forward_output(engine, job)?;
                engine.tools.job_opened(engine.now());
                Event::JobOpened { job }
            }
            Err(mut errors) => match errors.swap_remove(0) {
                (_, error) if is_first || error.is_plugins() => return Err(error),
                (appnum, error) => Event::OpenFailed { job, error: start_error(appnum, &error) },
            },
        };
        self.answer(engine, event)
    }

    /// Applies a rank's request to the PMI server of the head.
    fn apply(
        &mut self,
        engine: &mut Engine<'_>,
        request: RequestId,
        input: Input<'_>,
    ) -> Result<(), RunError> {
        let result = engine.apply(input)?;
        self.answer(engine, Event::BackendReply { request, result })
    }

    /// Writes the rest of the output of a job all of whose ranks have ended. Streams of ranks here have ended by now.
    fn drain(&mut self, engine: &mut Engine<'_>, id: JobId) {
        self.draining.push(id);
        engine.finish_output(id);
    }

    /// Reports jobs whose output has been written.
    pub(in super::super) fn settle(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        for job in std::mem::take(&mut self.draining) {
            // Streams of ranks end at their nodes, so the head has nothing left to read.
            let submission = self.control.jobs().get(job).and_then(|job| job.submission);
            let reader_closed = engine.is_cut_off(submission);
            self.handle(engine, Event::OutputDrained { job, reader_closed })?;
        }
        Ok(())
    }

    /// Returns whether the run is over, its output is written and all daemons have ended.
    pub(in super::super) fn is_finished(&mut self, engine: &mut Engine<'_>) -> Result<bool, RunError> {
        if !self.losses_reported && self.control.is_over() {
            self.losses_reported = true;
            if let Some((sink, errno)) = engine.sinks.failure() {
                self.handle(engine, Event::OutputLost)?;
                let line = format!("output was lost, cannot write {}: {errno}", engine.sinks.name(sink));
                engine.sinks.print(&line);
            }
            engine.flush();
        }
        let is_written = engine.sinks.are_empty();
        Ok(self.finish.is_some_and(|flush| !flush || is_written) && engine.end_links())
    }

    /// Writes output of a rank on another node.
    fn take_rank_output(
        &mut self,
        engine: &mut Engine<'_>,
        (via, from): (u32, u32),
        body: &[u8],
    ) -> Result<(), RunError> {
        let now = engine.now();
        let chunk = self.control.decode_output(from, body)?;
        let chunk = chunk.and_then(|chunk| Some((engine.jobs.get(chunk.job)?.slot(chunk.rank.0), chunk)));
        let sink = chunk.map(|(slot, chunk)| {
            let stream = 2 * slot + u32::from(chunk.stderr);
            engine.streams.arrived(stream, now, chunk.bytes, &mut engine.sinks)
        });
        if let Some(nodes) = &mut engine.nodes {
            nodes.acknowledge_later(sink, via, body.len() as u32);
        }
        Ok(())
    }

    /// Has ranks on other nodes get the error of a closed pipe whose output nobody takes, and executes actions that wait.
    pub(in super::super) fn close_output(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        for (job, streams) in engine.take_closed_output() {
            self.answer(engine, Event::OutputClosed { job, streams })?;
        }
        self.carry_out(engine)
    }

    /// Sends standard input to the nodes of its readers.
    pub(in super::super) fn send_input(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        for bytes in engine.stdin.take_pieces() {
            self.handle(engine, Event::StdinRead(bytes))?;
        }
        Ok(())
    }

    /// The next time at which the head has something to do.
    pub(in super::super) fn poll_at(&self, plan: &Plan) -> Option<u64> {
        let at = [
            self.patience.as_ref().and_then(Patience::poll_at),
            self.names.as_ref().and_then(Names::poll_at),
            self.time_limit_at(plan),
            self.status_at(),
            self.pmix_queries.poll_at(),
            self.progress.as_ref().and_then(Progress::poll_at),
            self.help_texts.poll_at(),
            self.fleet.as_ref().and_then(Fleet::poll_at),
        ];
        at.into_iter().flatten().min()
    }

    /// Handles timeouts.
    pub(in super::super) fn keep_time(&mut self, engine: &mut Engine<'_>, now: u64) -> Result<(), RunError> {
        self.keep_time_limit(engine, now)?;
        if let Some(names) = &mut self.names {
            names.handle_timeout(now)?;
        }
        self.keep_patience(engine, now)?;
        self.keep_status_time(engine, now);
        self.keep_tools(engine, now)?;
        self.keep_fleet_time(engine, now)?;
        self.show_help_texts(engine, false);
        if self.pmix_queries.are_pending() {
            // Nodes may be late.
            self.pmix_queries.handle_timeout(now);
            self.finish_pmix_queries(engine)?;
            self.carry_out(engine)?;
        }
        if let Some(progress) = &mut self.progress
            && progress.poll_at().is_some_and(|at| at <= now)
        {
            if !progress.show(now, &self.control, &mut engine.sinks) {
                self.progress = None;
            }
            engine.flush();
        }
        Ok(())
    }

    /// Ends the run. Returns the exit code of the command: a result that is lost is a failure.
    pub(in super::super) fn end(&mut self, engine: &mut Engine<'_>) -> u8 {
        let code = self.control.exit_code();
        if self.progress.take().is_some() {
            engine.sinks.erase_progress();
            engine.flush();
        }
        self.show_help_texts(engine, true);
        self.end_status(engine, code);
        self.part_from_clients(engine);
        match self.result.write(code) {
            Ok(()) => code,
            Err(line) => {
                engine.sinks.print(&line);
                engine.flush();
                code.max(1)
            }
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

impl Engine<'_> {
    /// Applies a request of a client to this node's PMI server.
    pub(in super::super) fn apply(&mut self, input: Input<'_>) -> Result<Result<(), Refusal>, RunError> {
        let now = Time(self.now());
        match self.core.handle(now, input) {
            Ok(_) => Ok(Ok(())),
            Err(BackendError::Fault(Fault::Refused(why))) => Ok(Err(why)),
            Err(BackendError::Fault(Fault::BadPset)) => Ok(Err(Refusal::BadGroup)),
            Err(BackendError::Fault(Fault::NoSuchJob)) => Ok(Err(Refusal::NoJob)),
            Err(error) => Err(error.into()),
        }
    }
}
