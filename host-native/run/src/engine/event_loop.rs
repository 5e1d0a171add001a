//! Event loop of a process: what happens goes to its engine, its head or its daemon.

use hydrant_control::{DaemonEvent, Event as HeadEvent};
use hydrant_core::{Input, JobId, OwnedOutput, Time};
use hydrant_driver::{BackendError, Driver, Tool};
use hydrant_iof::window_size;
use hydrant_overlay::{Channel, Event as LinkEvent};
use hydrant_reactor::Key;
use hydrant_reactor::signals::Event as SignalEvent;
use rustix::process::Signal;

use super::nodes::ONLY_NODE;
use super::patience::Heard;
use super::token::Token;
use super::{Parts, Run};
use crate::error::RunError;

impl Run<'_> {
    /// Handles events until the run is complete. Returns the exit code, which is 0 for a daemon.
    pub(super) fn run(&mut self) -> Result<u8, RunError> {
        let mut keys = Vec::new();
        loop {
            match self.turn(&mut keys) {
                Ok(false) => {}
                Ok(true) => return Ok(self.parts.head().map_or(0, |head| head.end(&mut self.engine))),
                Err(error) => self.break_off(error)?,
            }
        }
    }

    /// Waits for events and handles them. Returns true when the run is complete.
    fn turn(&mut self, keys: &mut Vec<Key>) -> Result<bool, RunError> {
        self.deliver()?;
        if let Some(daemon) = self.parts.daemon() {
            daemon.start_some(&mut self.engine)?;
        }
        loop {
            if self.settle()? {
                return Ok(true);
            }
            if !self.deliver()? {
                break;
            }
        }
        self.flush_links()?;
        self.engine.watch_board()?;
        let (mut signals, now) = (false, self.wait(keys)?);
        for token in keys.iter().filter_map(|&key| Token::of(key)) {
            let engine = &mut self.engine;
            match token {
                Token::Signals => signals = true,
                Token::Listener(id) | Token::Pmix(id) => engine.accept(JobId(id))?,
                Token::Queries(id) => engine.accept_queries(JobId(id))?,
                Token::Conn(key) => self.conn_ready(key, now)?,
                Token::Board => self.take_outputs()?,
                Token::Looks => {
                    engine.take_looks()?;
                    self.take_outputs()?;
                }
                Token::Iof(key) => engine.stream_ready(key),
                Token::Links(key) => engine.link_ready(key)?,
                Token::NameClient(key) => {
                    if let Some(head) = self.parts.head() {
                        head.name_client_ready(engine, key);
                    }
                    self.take_outputs()?;
                }
                Token::Tools => {
                    if let Some(head) = self.parts.head() {
                        head.accept_tools(engine)?;
                    }
                    self.take_outputs()?;
                }
                Token::Relay(slot) => {
                    engine.relay_ready(slot)?;
                    self.take_outputs()?;
                }
                Token::Fleet(key) => {
                    if let Some(head) = self.parts.head() {
                        head.fleet_ready(engine, key)?;
                    }
                    self.take_outputs()?;
                }
                Token::Status(key) => {
                    if let Some(head) = self.parts.head() {
                        head.status_ready(engine, key)?;
                    }
                }
            }
        }
        self.engine.look_at_ranks();
        // Signals are handled last, so that output of a rank precedes its exit.
        if signals {
            self.take_signals()?;
        }
        self.keep_time()?;
        self.turn_nodes()?;
        self.engine.flush();
        if let Some(head) = self.parts.head() {
            head.copy_output(&mut self.engine);
        }
        Ok(false)
    }

    /// Passes the orders and reports on that wait in this process. Returns whether there were any.
    fn deliver(&mut self) -> Result<bool, RunError> {
        let mut any = false;
        while self.deliver_next()? {
            any = true;
        }
        if any {
            // A message may have printed a line.
            self.engine.flush();
        }
        Ok(any)
    }

    fn deliver_next(&mut self) -> Result<bool, RunError> {
        let Run { engine, parts } = self;
        let Parts::Both(head, daemon) = parts else { return Ok(false) };
        if let Some(order) = engine.messages.orders.pop_front() {
            daemon.handle(engine, DaemonEvent::Order(order))?;
        } else if let Some(report) = engine.messages.reports.pop_front() {
            head.handle(engine, HeadEvent::Message { node: ONLY_NODE, bytes: &report })?;
        } else {
            return Ok(false);
        }
        self.take_outputs()?;
        Ok(true)
    }

    /// Goes on with jobs whose output has been written. Returns true if the run is over and all daemons have ended.
    fn settle(&mut self) -> Result<bool, RunError> {
        if let Some(daemon) = self.parts.daemon() {
            daemon.settle(&mut self.engine)?;
        }
        if let Some(head) = self.parts.head() {
            head.settle(&mut self.engine)?;
        }
        self.take_outputs()?;
        match self.parts.head() {
            Some(head) => head.is_finished(&mut self.engine),
            None => Ok(self.engine.are_links_over()),
        }
    }

    /// Handles a ready connection.
    ///
    /// It is answered before the next one is read. A client whose reply is there before it waits is not woken, and others
    /// work meanwhile on other processors.
    pub(super) fn conn_ready(&mut self, key: Key, now: u64) -> Result<(), RunError> {
        let Some(driver) = self.engine.core.driver() else { return Ok(()) };
        driver.ready(key, now, &self.engine.poller)?;
        self.take_outputs_at(now)
    }

    /// Handles all that the PMI server and the name service have done.
    fn take_outputs(&mut self) -> Result<(), RunError> {
        self.take_outputs_at(self.engine.now())
    }

    /// As [`take_outputs`](Run::take_outputs), at a time that has just been read from the clock.
    fn take_outputs_at(&mut self, mut now: u64) -> Result<(), RunError> {
        loop {
            if let Some(output) = self.engine.next_output(now)? {
                self.take_output(output)?;
            } else if !self.pass_name()? && !self.pass_tool()? && !self.engine.show_board() {
                self.engine.note_unserved();
                return Ok(());
            }
            self.engine.has_acted = true;
            now = self.engine.now();
        }
    }

    /// Passes an output of the PMI server to the daemon that it serves. The server of a head of other hosts is its own.
    fn take_output(&mut self, output: OwnedOutput) -> Result<(), RunError> {
        let Run { engine, parts } = self;
        if let Some(job) = output.view().job().filter(|&job| engine.is_tool(job))
            && let Some(head) = parts.head()
        {
            return head.take_tool_output(engine, job, output);
        }
        match parts {
            Parts::Daemon(daemon) | Parts::Both(_, daemon) => daemon.take_output(engine, output),
            Parts::Head(head) => head.take_output(engine, output),
        }
    }

    fn pass_name(&mut self) -> Result<bool, RunError> {
        self.parts.head().map_or(Ok(false), |head| head.pass_name(&mut self.engine))
    }

    /// Passes a tool on that has connected to the port of ranks. Returns whether there is one.
    fn pass_tool(&mut self) -> Result<bool, RunError> {
        let Run { engine, parts } = self;
        let Some(tool) = engine.core.driver().and_then(Driver::take_tool) else { return Ok(false) };
        let Tool { job, client, said } = tool;
        if let Some(job) = engine.jobs.get_mut(job) {
            // Its rank has found the server.
            job.run.joined = true;
        }
        match parts {
            Parts::Head(head) | Parts::Both(head, _) => head.admit_tool(engine, client, &said).map(drop)?,
            Parts::Daemon(_) => engine.relay_tool(client, said)?,
        }
        Ok(true)
    }

    /// Handles timeouts.
    fn keep_time(&mut self) -> Result<(), RunError> {
        let Run { engine, parts } = self;
        let now = engine.now();
        engine.core.handle_timeout(now)?;
        engine.keep_topology_file(now)?;
        engine.resume_ports(now)?;
        let ended = std::mem::take(&mut engine.ended_helpers);
        if let Some(head) = parts.head() {
            ended.into_iter().for_each(|pid| head.debugger_ended(engine, pid));
            head.keep_time(engine, now)?;
        }
        self.take_outputs()?;
        self.engine.keep_streams_time(now);
        Ok(())
    }

    /// Handles received messages, and timeouts of links and processes.
    fn turn_nodes(&mut self) -> Result<(), RunError> {
        self.engine.keep_links_time()?;
        if let Some(daemon) = self.parts.daemon() {
            daemon.keep_time(&mut self.engine)?;
        }
        while let Some(event) = self.engine.next_link_event() {
            self.take_link_event(event)?;
        }
        self.send_input()
    }

    fn take_link_event(&mut self, event: LinkEvent) -> Result<(), RunError> {
        let Run { engine, parts } = self;
        match event {
            LinkEvent::Message { from, channel: Channel::Peer | Channel::Routed, body, .. } => {
                let now = Time(engine.now());
                match engine.core.handle(now, Input::Peer { node: from, bytes: &body }) {
                    Err(BackendError::Fault(why)) => return Err(RunError::Peer { node: from, why }),
                    result => result?,
                }
            }
            LinkEvent::Closed => engine.links_closed(),
            event => match parts {
                Parts::Daemon(daemon) | Parts::Both(_, daemon) => daemon.take_link_event(engine, event)?,
                Parts::Head(head) => head.take_link_event(engine, event)?,
            },
        }
        self.take_outputs()
    }

    /// Writes to the links.
    fn flush_links(&mut self) -> Result<(), RunError> {
        if let Some(head) = self.parts.head() {
            head.close_output(&mut self.engine)?;
            head.write_to_clients(&mut self.engine)?;
        }
        self.engine.print_fences();
        self.engine.send_unsent();
        while self.engine.write_links()? {
            self.take_outputs()?;
        }
        Ok(())
    }

    /// Sends the head's standard input to its readers' nodes, and the number of bytes that they have consumed to the head.
    fn send_input(&mut self) -> Result<(), RunError> {
        let Run { engine, parts } = self;
        if let Some(daemon) = parts.daemon() {
            daemon.report_input(engine)?;
        }
        if let Some(head) = parts.head() {
            head.send_input(engine)?;
        }
        Ok(())
    }

    /// Handles pending signals.
    fn take_signals(&mut self) -> Result<(), RunError> {
        let mut events = Vec::new();
        self.engine.signals.read(&mut events)?;
        // None of them comes a second time, so all are acted on before an error is returned.
        let mut result = Ok(());
        for event in events {
            result = result.and(match event {
                SignalEvent::Child => self.take_exits(),
                SignalEvent::Stop => self.stop(),
                SignalEvent::Continue => self.resume(),
                SignalEvent::WindowResized => self.window_resized(),
                SignalEvent::Forward(signal) => self.take_signal(signal),
            });
        }
        result
    }

    fn take_exits(&mut self) -> Result<(), RunError> {
        match self.parts.daemon() {
            Some(daemon) => daemon.take_exits(&mut self.engine),
            None => {
                self.engine.reap_helpers();
                Ok(())
            }
        }
    }

    /// Stops the ranks and this process, until a signal continues it.
    fn stop(&mut self) -> Result<(), RunError> {
        self.engine.flush();
        let suspended = self.tell(HeadEvent::Suspended, DaemonEvent::Suspended);
        let suspended = suspended.and_then(|()| self.deliver()).map(drop);
        self.engine.announce_pause();
        self.engine.signals.stop_process();
        suspended.and(self.resume())
    }

    fn resume(&mut self) -> Result<(), RunError> {
        let resumed = self.tell(HeadEvent::Resumed, DaemonEvent::Resumed);
        // The launcher may be in the foreground now.
        let now = self.engine.now();
        self.engine.stdin.pump(now, &self.engine.poller);
        resumed
    }

    fn window_resized(&mut self) -> Result<(), RunError> {
        match self.parts.head() {
            Some(head) => head.handle(&mut self.engine, HeadEvent::WindowResized(window_size())),
            None => Ok(()),
        }
    }

    /// Handles a signal of the user, or of who ends a daemon.
    fn take_signal(&mut self, signal: Signal) -> Result<(), RunError> {
        let Run { engine, parts } = self;
        let heard = parts.head().map_or(Heard::Counts, |head| head.hear(engine, signal));
        let is_over = match heard {
            Heard::Counts => false,
            // What ranks have left behind may have output. A second signal ends the run without it.
            Heard::NoRankRuns => parts.daemon().is_some_and(|daemon| daemon.hasten_drains(engine, false)),
            Heard::Twice => true,
        };
        match is_over {
            true => Ok(()),
            false => self.tell(HeadEvent::Signal(signal.as_raw()), DaemonEvent::Signal(signal.as_raw())),
        }
    }

    /// Passes an event of this process to its head, or to the daemon of a head elsewhere.
    fn tell(&mut self, head_event: HeadEvent<'_>, daemon_event: DaemonEvent) -> Result<(), RunError> {
        let Run { engine, parts } = self;
        match parts {
            Parts::Head(head) | Parts::Both(head, _) => head.handle(engine, head_event),
            Parts::Daemon(daemon) => daemon.handle(engine, daemon_event),
        }
    }

    /// Ends a run on several nodes whose PMI server here has failed.
    ///
    /// # Errors
    /// The error itself, if there are no other nodes, they cannot be reached, or it is no error of the server.
    pub(super) fn break_off(&mut self, error: RunError) -> Result<(), RunError> {
        let Run { engine, parts } = self;
        match parts {
            Parts::Daemon(daemon) | Parts::Both(_, daemon) => daemon.break_off(engine, error),
            Parts::Head(head) => head.break_off(engine, error),
        }
    }
}
