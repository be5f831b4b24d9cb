//! The facts about a socket at the moment of a call, as a line of text.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Facts about a TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// `tcpi_state`.
    pub state: u8,
    /// `getsockname`; `None` before it is bound.
    pub local: Option<SocketAddr>,
    /// `getpeername`.
    pub peer: Option<SocketAddr>,
    /// `IPV6_V6ONLY`.
    pub v6only: bool,
    /// `SO_BINDTOIFINDEX`.
    pub ifindex: i32,
    /// `TCP_QUEUE_SEQ` of both queues; `None` outside repair mode.
    pub repair: Option<(u32, u32)>,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addr = |a: Option<SocketAddr>| a.map_or("-".to_owned(), |a| a.to_string());
        write!(
            f,
            "{} {} {} {} {} ",
            self.state,
            addr(self.local),
            addr(self.peer),
            u8::from(self.v6only),
            self.ifindex
        )?;
        match self.repair {
            None => f.write_str("-"),
            Some((send, receive)) => write!(f, "{send},{receive}"),
        }
    }
}

impl FromStr for Facts {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let fields: Vec<&str> = text.split(' ').collect();
        let [state, local, peer, v6only, ifindex, repair] = fields[..] else { return Err(()) };
        let addr = |a: &str| if a == "-" { Ok(None) } else { a.parse().map(Some).map_err(|_| ()) };
        let number = |n: &str| n.parse::<u32>().map_err(|_| ());
        Ok(Facts {
            state: state.parse().map_err(|_| ())?,
            local: addr(local)?,
            peer: addr(peer)?,
            v6only: v6only == "1",
            ifindex: ifindex.parse().map_err(|_| ())?,
            repair: match repair.split_once(',') {
                None if repair == "-" => None,
                None => return Err(()),
                Some((send, receive)) => Some((number(send)?, number(receive)?)),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let mut facts = Facts {
            state: 1,
            local: Some("[::ffff:127.0.0.1]:5".parse().unwrap()),
            peer: None,
            v6only: true,
            ifindex: 7,
            repair: Some((1, 4_000_000_000)),
        };
        assert_eq!(facts.to_string(), "1 [::ffff:127.0.0.1]:5 - 1 7 1,4000000000");
        assert_eq!(facts.to_string().parse(), Ok(facts));
        (facts.repair, facts.local) = (None, None);
        assert_eq!(facts.to_string().parse(), Ok(facts));
        assert_eq!("".parse::<Facts>(), Err(()));
    }
}
