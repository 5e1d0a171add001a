//! Spawned steps, from the request of a rank to the end of their job.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;

use hydrant_control::protocol::Entry;
use hydrant_core::OwnedInput;
use hydrant_host::UpcallId;
use rustix::process::Signal;

use super::{END_TIMEOUT, Node, Star};
use crate::message::{Layout, Ready, Registration, ToNode};
use crate::server::ServerError;
use crate::spawned::{State, Step};
use crate::srun::{Refusal, Request, SpawnError};

impl Star {
    /// A rank asks for a spawn.
    pub(super) fn spawn(&mut self, request: Request) {
        let refusal = if self.ended {
            Some(request.refusal(SpawnError::Ending))
        } else if self.history.is_cut() {
            Some(request.refusal(SpawnError::Requests))
        } else {
            let spawner = self.registered().find(|known| known.job == request.call.job);
            let spawner = spawner.map_or_else(String::new, |known| known.name.clone());
            let first = self.first_size();
            self.spawned.start(&spawner, first, request, &self.poller)
        };
        refusal.into_iter().for_each(|refusal| self.refuse(refusal));
    }

    /// Number of ranks of the first step.
    fn first_size(&self) -> u32 {
        let first = |node| self.nodes.get(&node)?.ready.as_ref();
        self.servers.first().filter_map(first).map(|ready| ready.ranks.len() as u32).sum()
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) {
        let Refusal { node, spawn, rank, codes, why } = refusal;
        if !matches!(why, SpawnError::Ending) {
            (self.print)(&format!("hydrant: nothing is spawned for rank {rank}: {why}"));
        }
        self.complete(node, spawn, false, codes);
    }

    fn complete(&mut self, node: u32, spawn: UpcallId, started: bool, codes: Vec<u8>) {
        let input = OwnedInput::SpawnComplete { spawn, started, full: None, codes };
        self.order(node, &ToNode::Input(input));
    }

    /// Starts the jobs of spawned steps whose nodes are ready, and refuses those whose nodes cannot be.
    pub(super) fn open_steps(&mut self) -> Result<(), ServerError> {
        let now = self.clock.now();
        let starting = self.spawned.iter().filter(|(_, step)| step.state == State::Starting);
        let starting: Vec<_> =
            starting.filter_map(|(id, step)| Some((id, step.numbers()?, step.is_late(now)))).collect();
        for (id, numbers, is_late) in starting {
            let numbers: Vec<u32> = numbers.collect();
            let ready = |number: &u32| self.nodes.get(number)?.ready.as_ref();
            let there: Vec<&Ready> = numbers.iter().filter_map(ready).collect();
            let lacking = numbers.len() - there.len();
            if let Some(not_executed) = there.iter().find_map(|node| node.not_executed) {
                self.refuse_step(id, |step| step.refuse_program(not_executed));
            } else if let Some(why) = there.iter().find_map(|node| node.refused.clone()) {
                self.refuse_step(id, |step| step.refuse(SpawnError::Step(why)));
            } else if self.history.is_cut() {
                self.refuse_step(id, |step| step.refuse(SpawnError::Requests));
            } else if lacking == 0 {
                match self.layout(&numbers) {
                    Some(layout) => self.open_step(id, &numbers, layout)?,
                    None => self.fail_step(id, "the nodes do not agree on their ranks"),
                }
            } else if is_late {
                let why = format!("{lacking} of {} nodes have not connected to srun in time", numbers.len());
                self.give_up_step(id, &why);
            }
        }
        Ok(())
    }

    /// Refuses a spawn, unless that has been done, and ends the tasks that have been started for it.
    fn refuse_step(&mut self, id: u32, refuse: impl FnOnce(&mut Step) -> Option<Refusal>) {
        let Some(step) = self.spawned.get_mut(id) else { return };
        let nodes = step.reserved();
        if let Some(refusal) = refuse(step) {
            self.refuse(refusal);
            nodes.for_each(|node| self.order(node, &ToNode::End));
        }
    }

    /// A spawned step has failed: nothing was spawned, or all steps end.
    pub(super) fn fail_step(&mut self, id: u32, why: &str) {
        let Some(step) = self.spawned.get(id) else { return };
        match step.state {
            State::Starting => self.refuse_step(id, |step| step.refuse(SpawnError::Step(why.to_owned()))),
            State::Running => {
                let rank = step.request.call.rank;
                self.end(&format!("a step that rank {rank} has spawned ends: {why}"));
            }
            State::Refused => {}
        }
    }

    /// Fails a spawned step with nodes that no order reaches.
    pub(super) fn give_up_step(&mut self, id: u32, why: &str) {
        self.fail_step(id, why);
        self.spawned.get_mut(id).into_iter().for_each(|step| step.signal(Signal::TERM));
    }

    /// Makes the nodes of a spawned step members, and starts its job.
    fn open_step(&mut self, id: u32, numbers: &[u32], layout: Layout) -> Result<(), ServerError> {
        for &node in numbers {
            // What all others have been told.
            let order_of = |entry: &Entry<Box<Registration>>| match entry {
                Entry::Job(_, registration) => ToNode::Register(registration.clone()),
                Entry::Input(input) => ToNode::Input(input.clone()),
            };
            let orders: Vec<ToNode> = self.history.iter().map(order_of).collect();
            orders.iter().for_each(|order| self.order(node, order));
            self.nodes.get_mut(&node).into_iter().for_each(|node| node.is_member = true);
            self.epoch += 1;
            self.change_membership(&OwnedInput::NodeJoined { epoch: self.epoch, node })?;
        }
        let first = numbers.first().and_then(|node| self.nodes.get(node)?.ready.as_ref());
        let name = first.map_or_else(String::new, |ready| ready.job.clone());
        let Some(step) = self.spawned.get_mut(id) else { return Ok(()) };
        step.state = State::Running;
        let layout = Layout { origin: Some(step.origin.clone()), ..layout };
        let (node, spawn) = (step.request.node, step.request.call.upcall);
        let codes = vec![0; step.request.call.programs()];
        let registration = Registration { job: step.job, name, layout, spawn: None };
        self.register(registration, Some((node, spawn)))?;
        self.complete(node, spawn, true, codes);
        Ok(())
    }

    /// Removes spawned steps that are over.
    pub(super) fn close_steps(&mut self) -> Result<(), ServerError> {
        while let Some(step) = {
            let nodes = &self.nodes;
            self.spawned.take_over(|number| nodes.get(&number).is_some_and(|node| !node.over))
        } {
            self.close_step(&step)?;
        }
        Ok(())
    }

    /// Has all servers forget a step that is over.
    fn close_step(&mut self, step: &Step) -> Result<(), ServerError> {
        let numbers: Vec<u32> = step.reserved().collect();
        if step.state == State::Running {
            let job = step.job;
            if let Some(host) = &mut self.host {
                host.deregister_job(job)?;
            }
            let is_left =
                |(number, node): &(&u32, &Node)| node.is_member && !node.over && !numbers.contains(number);
            let left: BTreeSet<u32> = self.nodes.iter().filter(is_left).map(|(&number, _)| number).collect();
            left.iter().for_each(|&node| self.order(node, &ToNode::Deregister(job)));
            self.names.forget(job, self.clock.now())?;
            self.history.forget(job);
            self.spawned.forget(job, left);
        }
        for node in numbers {
            let connection = self.nodes.get(&node).and_then(|node| node.connection);
            connection.into_iter().for_each(|id| drop(self.connections.remove(&id)));
            if self.nodes.remove(&node).is_some_and(|node| node.is_member) {
                self.epoch += 1;
                self.change_membership(&OwnedInput::NodeLost { epoch: self.epoch, node })?;
            }
        }
        if step.state == State::Running {
            self.order(step.request.node, &ToNode::SpawnedOver);
        }
        Ok(())
    }

    /// The srun of a spawned step has ended.
    pub(super) fn srun_ended(&mut self, id: u32) {
        let Some(status) = self.spawned.ended(id, &self.poller) else { return };
        let Some(step) = self.spawned.get_mut(id) else { return };
        let rank = step.request.call.rank;
        match (step.state, status.signal()) {
            (State::Starting, _) => {
                let refusal = step.refuse(SpawnError::Ended(status));
                refusal.into_iter().for_each(|refusal| self.refuse(refusal));
            }
            (State::Running, Some(signal)) => {
                self.end(&format!("srun of a step that rank {rank} has spawned died by signal {signal}"));
            }
            (State::Running | State::Refused, _) => {}
        }
    }

    /// Ends the spawned steps that run after this one, and waits for them, for a limited time.
    pub(super) fn end_spawned(&mut self) -> Result<(), ServerError> {
        self.end_tasks();
        let last = self.clock.now() + END_TIMEOUT;
        // The other end is closed now, and readable for ever.
        self.poller.remove(&self.stop);
        while !self.spawned.have_ended() {
            self.turn(Some(last))?;
            if self.clock.now() >= last {
                self.spawned.signal(Signal::KILL);
            }
        }
        Ok(())
    }
}
