//! Answers questions: bytes in, bytes out, without side effects.
//!
//! | question | answer |
//! |---|---|
//! | A, AAAA of the service name | addresses of the nearest living nodes |
//! | SRV of the service name, or `_s3._tcp` below | living nodes, nearest with smallest priority; addresses |
//! | A, AAAA of a node's name below the service name | its address |
//! | A, AAAA of another name below, where buckets stand before the service name | as of the service name |
//! | SOA of the service name | for caches and monitors |
//! | another type | NOERROR without records: there is none |
//! | a name below that is no living node's | NXDOMAIN |
//! | anything, while no living node is known | SERVFAIL: ask another server |
//! | a name outside, or another class | REFUSED |
//! | an operation other than a query | NOTIMP |
//! | not one well-formed question | FORMERR |

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use hickory_proto::rr::rdata::{A, AAAA, HINFO, SOA, SRV};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};
use shoal_net::words;
use shoal_node::config::Lookup;

use super::choice::{Choice, Eligibility, choose, reachable_by};
use super::client::Client;
use super::places::Places;
use super::zone::{Subject, Zone};
use crate::TTL_SECONDS;
use crate::live_nodes::LiveNode;

/// The largest datagram that reaches every client in one piece, in bytes (DNS Flag Day 2020); the server
/// neither asks for nor sends more over UDP.
const DATAGRAM_BYTES: u16 = 1232;
/// The datagram size that a client accepts if it does not state one (RFC 1035, section 4.2.1).
const PLAIN_DATAGRAM_BYTES: u16 = 512;
/// The maximum number of nodes in an SRV answer: as many as fit with their addresses if names are of ordinary
/// length.
const SRV_RECORDS_MAX: usize = 8;

words! {
    /// How a question arrived.
    pub enum Transport {
        /// In a datagram, into which the answer has to fit as well.
        Udp = "udp",
        /// On a TCP connection.
        Tcp = "tcp",
    }
}

/// Answers questions.
#[derive(Clone, Debug)]
pub struct Responder {
    zone: Zone,
    config: Lookup,
    /// The places of networks.
    pub places: Places,
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The message.
    pub bytes: Vec<u8>,
    /// The response code.
    pub code: ResponseCode,
}

/// The content of an answer.
#[derive(Debug, Default)]
struct AnswerRecords {
    code: ResponseCode,
    records: Vec<Record>,
    /// Addresses of the names in `records`.
    beside: Vec<Record>,
    /// True if another client could get other records.
    tailored: bool,
}

impl AnswerRecords {
    fn from_code(code: ResponseCode) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    fn with(records: Vec<Record>) -> Self {
        Self {
            records,
            ..Self::default()
        }
    }
}

impl Responder {
    /// Creates a responder from the configuration; `name` is the service name.
    ///
    /// # Errors
    ///
    /// Fails if `name` is not a domain name.
    pub fn new(lookup: &Lookup, name: &str) -> Result<Self, ProtoError> {
        Ok(Self {
            zone: Zone::new(name)?,
            config: lookup.clone(),
            places: Places::new(lookup),
        })
    }

    /// Answers one message; `None` if it is not a question, because answering it could start an endless loop.
    pub fn answer(
        &self,
        bytes: &[u8],
        source: IpAddr,
        transport: Transport,
        live: &[Arc<LiveNode>],
    ) -> Option<Reply> {
        let header = Header::read(&mut BinDecoder::new(bytes)).ok()?;
        if header.metadata.message_type == MessageType::Response {
            return None;
        }
        let (response, room_bytes) = self.respond(&header, bytes, source, live);
        let limit_bytes = match transport {
            Transport::Udp => usize::from(room_bytes),
            Transport::Tcp => usize::from(u16::MAX),
        };
        let code = response.metadata.response_code;
        let bytes = encode(response, limit_bytes).ok()?;
        debug_assert!(bytes.len() <= limit_bytes, "an answer has room in its transport");
        Some(Reply { bytes, code })
    }

    /// Chooses among the living nodes for a client, with reasons, ignoring address families.
    pub fn explain(&self, client: &Client, live: &[Arc<LiveNode>]) -> Vec<Choice> {
        let place = self.places.locate(client.network);
        choose(
            client,
            place.map(|place| &*place.topology),
            live,
            self.config.answers,
        )
    }

    /// Returns true if a resolver may name the clients for which it asks.
    pub fn trusts(&self, resolver: IpAddr) -> bool {
        let trusted = &self.config.trusted_resolvers;
        trusted.iter().any(|network| network.contains(&resolver))
    }

    /// Returns the response to one message, and the size of a datagram that its sender accepts, in bytes.
    fn respond(
        &self,
        header: &Header,
        bytes: &[u8],
        source: IpAddr,
        live: &[Arc<LiveNode>],
    ) -> (Message, u16) {
        let metadata = Metadata::response_from_request(&header.metadata);
        let refuse = |code| (message(metadata, code), PLAIN_DATAGRAM_BYTES);
        if header.metadata.op_code != OpCode::Query {
            return refuse(ResponseCode::NotImp);
        }
        // Checked before decoding, which would allocate room for up to 65,535 questions.
        if header.counts.queries != 1 {
            return refuse(ResponseCode::FormErr);
        }
        let Ok(request) = Message::from_vec(bytes) else {
            return refuse(ResponseCode::FormErr);
        };
        let room_bytes = request.edns.as_ref().map_or(PLAIN_DATAGRAM_BYTES, |edns| {
            edns.max_payload().clamp(PLAIN_DATAGRAM_BYTES, DATAGRAM_BYTES)
        });
        (self.respond_to(&request, metadata, source, live), room_bytes)
    }

    fn respond_to(
        &self,
        request: &Message,
        metadata: Metadata,
        source: IpAddr,
        live: &[Arc<LiveNode>],
    ) -> Message {
        let Some(query) = request.queries.first() else {
            return message(metadata, ResponseCode::FormErr);
        };
        let option = client_subnet(request);
        let edns = request.edns.as_ref().map(response_edns);
        let with_edns = |mut response: Message| {
            response.add_query(query.clone());
            response.edns.clone_from(&edns);
            response
        };
        if request.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
            return with_edns(message(metadata, ResponseCode::BADVERS));
        }
        let Some(client) = Client::new(source, option, &self.config.trusted_resolvers) else {
            return with_edns(message(metadata, ResponseCode::FormErr));
        };
        let answer = self.resolve(query, &client, live);
        let mut response = with_edns(message(metadata, answer.code));
        let ours = matches!(answer.code, ResponseCode::NoError | ResponseCode::NXDomain);
        response.metadata.authoritative = ours;
        if ours && let (Some(option), Some(edns)) = (option, &mut response.edns) {
            let tailored = answer.tailored && !answer.records.is_empty();
            let scope = if tailored && client.from_option {
                self.places.scope(client.network)
            } else {
                0
            };
            let option = ClientSubnet::new(option.addr(), option.source_prefix(), scope);
            edns.options_mut().insert(EdnsOption::Subnet(option));
        }
        if ours && answer.records.is_empty() {
            // The authority section states how long the absence may be cached (RFC 2308).
            response.add_authority(self.start_of_authority());
        }
        response.add_answers(answer.records);
        response.add_additionals(answer.beside);
        response
    }

    fn resolve(&self, query: &Query, client: &Client, live: &[Arc<LiveNode>]) -> AnswerRecords {
        let subject = self.zone.subject(query.name());
        if query.query_class() != DNSClass::IN || subject == Subject::Outside {
            return AnswerRecords::from_code(ResponseCode::Refused);
        }
        if !can_answer(live) {
            return AnswerRecords::from_code(ResponseCode::ServFail);
        }
        match (subject, query.query_type()) {
            // ANY is mostly used for amplification, so it gets a minimal answer (RFC 8482).
            (Subject::Service, RecordType::ANY) => {
                let minimal = HINFO::new("RFC8482".into(), String::new());
                AnswerRecords::with(vec![record(query.name(), RData::HINFO(minimal))])
            }
            (Subject::Service, RecordType::SOA) => AnswerRecords::with(vec![self.start_of_authority()]),
            (Subject::Service, kind @ (RecordType::A | RecordType::AAAA)) => {
                self.nearest(query.name(), kind, client, live)
            }
            (Subject::Service | Subject::ServiceRecords, RecordType::SRV) => {
                self.services(query.name(), client, live)
            }
            (Subject::Node(name), kind) => {
                let node = live.iter().find(|live| live.member.name.to_lowercase() == name);
                match node {
                    Some(node) => {
                        let address = address(query.name(), node);
                        let asked_for = address.filter(|record| record.record_type() == kind);
                        AnswerRecords::with(asked_for.into_iter().collect())
                    }
                    None if self.config.buckets => self.nearest(query.name(), kind, client, live),
                    None => absent(&name, live),
                }
            }
            _ => AnswerRecords::default(),
        }
    }

    /// The addresses of the nearest nodes of the requested family.
    fn nearest(
        &self,
        name: &Name,
        kind: RecordType,
        client: &Client,
        live: &[Arc<LiveNode>],
    ) -> AnswerRecords {
        let is_of_family = match kind {
            RecordType::A => SocketAddr::is_ipv4,
            RecordType::AAAA => SocketAddr::is_ipv6,
            _ => return AnswerRecords::default(),
        };
        let choices = self.explain(client, &reachable_by(is_of_family, live));
        let answered = choices
            .iter()
            .filter(|choice| choice.eligibility == Eligibility::Answered);
        AnswerRecords {
            tailored: true,
            ..AnswerRecords::with(
                answered
                    .filter_map(|choice| address(name, &choice.live))
                    .collect(),
            )
        }
    }

    /// SRV records for the nodes in the order in which to try them, and their addresses.
    fn services(&self, name: &Name, client: &Client, live: &[Arc<LiveNode>]) -> AnswerRecords {
        let choices = self.explain(client, live).into_iter();
        let fit = choices
            .filter(|choice| !matches!(choice.eligibility, Eligibility::Draining | Eligibility::NoAddress));
        let named = fit.filter_map(|choice| {
            let target = self.zone.node(&choice.live.member.name)?;
            let port = choice.live.address?.port();
            Some((target, port, choice))
        });
        let mut answer = AnswerRecords {
            tailored: true,
            ..AnswerRecords::default()
        };
        for ((target, port, choice), priority) in named.take(SRV_RECORDS_MAX).zip(0..) {
            // The order is given by priority alone: with weights each client would choose at random every
            // time, and not return to the node that caches its blocks.
            let service = SRV::new(priority, 0, port, target.clone());
            answer.records.push(record(name, RData::SRV(service)));
            answer.beside.extend(address(&target, &choice.live));
        }
        answer
    }

    /// There are no secondary servers for this zone, so only the last number matters: how long negative
    /// answers are valid.
    fn start_of_authority(&self) -> Record {
        const HOUR_SECONDS: i32 = 3600;
        let name = self.zone.name();
        let keeper = name.prepend_label("hostmaster").unwrap_or_else(|_| name.clone());
        let data = SOA::new(
            name.clone(),
            keeper,
            1,
            HOUR_SECONDS,
            HOUR_SECONDS,
            HOUR_SECONDS,
            TTL_SECONDS,
        );
        record(name, RData::SOA(data))
    }
}

/// Returns true if clients can be directed to one of these nodes.
pub fn can_answer(live: &[Arc<LiveNode>]) -> bool {
    live.iter().any(|live| live.address.is_some())
}

/// The answer if no living node has the name. A name without records exists if a name below it does (RFC
/// 8020).
fn absent(name: &str, live: &[Arc<LiveNode>]) -> AnswerRecords {
    let ending = format!(".{name}");
    let below = |live: &Arc<LiveNode>| live.member.name.to_lowercase().ends_with(&ending);
    AnswerRecords::from_code(if live.iter().any(below) {
        ResponseCode::NoError
    } else {
        ResponseCode::NXDomain
    })
}

fn address(name: &Name, live: &LiveNode) -> Option<Record> {
    let data = match live.address?.ip() {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Some(record(name, data))
}

fn record(name: &Name, data: RData) -> Record {
    Record::from_rdata(name.clone(), TTL_SECONDS, data)
}

fn message(metadata: Metadata, code: ResponseCode) -> Message {
    let mut message = Message::new(metadata.id, MessageType::Response, metadata.op_code);
    message.metadata = metadata;
    message.metadata.response_code = code;
    message
}

fn client_subnet(request: &Message) -> Option<ClientSubnet> {
    match request.edns.as_ref()?.option(EdnsCode::Subnet)? {
        EdnsOption::Subnet(subnet) => Some(*subnet),
        _ => None,
    }
}

fn response_edns(request: &Edns) -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(DATAGRAM_BYTES);
    // The DO bit is copied from the question (RFC 3225), although there are no signatures.
    edns.set_dnssec_ok(request.flags().dnssec_ok);
    edns
}

/// Encodes the response and drops parts that do not fit: first the additional addresses, which only save a
/// question, then all records, so that the client retries over TCP.
fn encode(mut response: Message, limit_bytes: usize) -> Result<Vec<u8>, ProtoError> {
    let whole = response.to_vec()?;
    if whole.len() <= limit_bytes {
        return Ok(whole);
    }
    response.additionals.clear();
    let alone = response.to_vec()?;
    if alone.len() <= limit_bytes {
        return Ok(alone);
    }
    response.truncate().to_vec()
}
