//! Address of the head, as srun passes it to the nodes of its step in a variable.

use hydrant_overlay::Ticket;

use crate::servers::Servers;

/// Variable of the srun of a spawned step, with its [`Address`].
pub(crate) const SPAWNED: &str = "HYDRANT_STEP_SPAWNED";

/// What a srun that hydrant starts is told, in [`SPAWNED`], and passes to its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Port and secret of the head of the first step.
    pub(crate) port: u16,
    pub(crate) ticket: Ticket,
    /// Of a spawned step.
    pub(crate) spawned: Option<Place>,
}

/// Place of a spawned step among those of the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) servers: Servers,
    /// Number of its first node.
    pub(crate) first: u32,
    /// Name of the job whose rank has asked for it.
    pub(crate) spawner: String,
}

impl Address {
    /// Reads `PORT:TICKET`, or `PORT:TICKET:NODES:RANKS:FIRST:SPAWNER`.
    pub(crate) fn from_text(text: &str) -> Option<Address> {
        let mut words = text.splitn(6, ':');
        let port = words.next()?.parse().ok()?;
        let ticket = Ticket::from_text(words.next()?)?;
        let mut number = || words.next().map(|word| word.parse::<u32>().ok());
        let spawned = match number() {
            None => None,
            Some(nodes) => {
                let (servers, first) = (Servers { nodes: nodes?, ranks: number()?? }, number()??);
                // The user's srun says so to slurmstepd, whose memory is not the user's.
                if !servers.are_sound() || !servers.late().contains(&first) {
                    return None;
                }
                Some(Place { servers, first, spawner: words.next()?.to_owned() })
            }
        };
        Some(Address { port, ticket, spawned })
    }

    pub(crate) fn to_text(&self) -> String {
        let Address { port, ticket, spawned } = self;
        let head = format!("{port}:{}", ticket.to_text());
        match spawned {
            None => head,
            Some(Place { servers: Servers { nodes, ranks }, first, spawner }) => {
                format!("{head}:{nodes}:{ranks}:{first}:{spawner}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let ticket = Ticket::random().unwrap();
        let place =
            Place { servers: Servers { nodes: 2, ranks: 300 }, first: 7, spawner: "slurm_1:2".into() };
        for spawned in [None, Some(place)] {
            let address = Address { port: 4711, ticket: ticket.clone(), spawned };
            let read = Address::from_text(&address.to_text()).unwrap();
            assert_eq!((read.port, &read.spawned), (address.port, &address.spawned));
            assert_eq!(read.ticket.to_text(), ticket.to_text());
        }
        let ticket = ticket.to_text();
        for text in [
            "",
            "1",
            "x:y",
            &format!("1:{ticket}:2"),
            &format!("1:{ticket}:2:3:x:job"),
            &format!("1:{ticket}:2:3:9999:job"),
        ] {
            assert!(Address::from_text(text).is_none(), "{text}");
        }
    }
}
