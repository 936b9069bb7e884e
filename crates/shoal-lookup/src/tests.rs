//! Tests queries as clients send them: the answers, their lifetimes in caches, and how the server treats
//! nonsense.

mod sockets;

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy;
use shoal_net::clock;
use shoal_node::admin::members::{Member, MemberState, Members};
use shoal_node::config::{Lookup, LookupPlace};

use super::answer::responder::{Reply, Responder, Transport};
use super::live_nodes::tests::member;
use super::live_nodes::{LiveNode, LiveNodes};

const RESOLVER: [u8; 4] = [10, 0, 0, 53];
/// In rack 1 of cluster a.
const CLIENT: [u8; 4] = [10, 1, 1, 7];

fn config() -> Lookup {
    let place = |(network, topology): (&str, &str)| LookupPlace {
        network: network.parse().unwrap(),
        topology: topology.into(),
    };
    let places = [
        ("10.1.1.0/24", "dc1/a/r1"),
        ("10.1.2.0/24", "dc1/a/r2"),
        ("10.2.0.0/16", "dc1/b/r1"),
    ];
    Lookup {
        name: Some("s3.example.org".into()),
        trusted_resolvers: vec!["10.0.0.53/32".parse().unwrap()],
        places: places.map(place).to_vec(),
        ..Lookup::default()
    }
}

fn cluster() -> Vec<Member> {
    vec![
        member("a1", "dc1/a/r1", "10.1.1.1:9000"),
        member("a2", "dc1/a/r2", "10.1.2.1:9000"),
        member("b1", "dc1/b/r1", "10.2.0.1:9001"),
        member("v6", "dc1/a/r1", "[fd00::1]:9000"),
    ]
}

fn live(members: Vec<Member>) -> Vec<Arc<LiveNode>> {
    let (mut live_nodes, now) = (LiveNodes::default(), clock::instant());
    let speaker = String::from("somebody else");
    live_nodes.receive(Members { speaker, members }, RESOLVER.into(), now);
    live_nodes.live(now)
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_str(name).unwrap(), kind));
    message
}

fn for_clients_of(network: &str, mut question: Message) -> Message {
    let mut edns = Edns::new();
    let subnet = ClientSubnet::from_str(network).unwrap();
    edns.options_mut().insert(EdnsOption::Subnet(subnet));
    question.set_edns(edns);
    question
}

/// The answer to `source`, over UDP, while `members` are alive.
fn ask_among(members: Vec<Member>, question: &Message, source: impl Into<IpAddr>) -> Message {
    let responder = Responder::new(&config(), "s3.example.org").unwrap();
    let bytes = question.to_vec().unwrap();
    let answer = responder.answer(&bytes, source.into(), Transport::Udp, &live(members));
    Message::from_vec(&answer.unwrap().bytes).unwrap()
}

fn ask(question: &Message) -> Message {
    ask_among(cluster(), question, CLIENT)
}

/// The answers, one a line, as `dig +short` prints them.
fn short(answer: &Message) -> Vec<String> {
    let data = answer.answers.iter().map(|record| record.data.to_string());
    data.collect()
}

/// The scope of the answer, in bits of the client's address.
fn scope(answer: &Message) -> Option<u8> {
    match answer.edns.as_ref()?.option(EdnsCode::Subnet)? {
        EdnsOption::Subnet(subnet) => Some(subnet.scope_prefix()),
        _ => None,
    }
}

#[test]
fn the_service_name_leads_each_client_to_its_nearest_node() {
    for (client, nearest) in [
        ([10, 1, 1, 7], "10.1.1.1"),
        ([10, 1, 2, 7], "10.1.2.1"),
        ([10, 2, 9, 9], "10.2.0.1"),
    ] {
        let answer = ask_among(cluster(), &question("S3.example.org.", RecordType::A), client);
        assert_eq!(short(&answer), [nearest], "{client:?}");
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert_eq!(
            answer.answers[0].ttl, 5,
            "nobody should remember it for longer than a node takes to die"
        );
    }
    let answer = ask(&question("s3.example.org.", RecordType::AAAA));
    assert_eq!(short(&answer), ["fd00::1"]);
}

#[test]
fn the_answer_is_authoritative_and_never_recursive() {
    let answer = ask(&question("s3.example.org.", RecordType::A)).metadata;
    assert_eq!((answer.id, answer.message_type), (4711, MessageType::Response));
    assert!(answer.authoritative && answer.recursion_desired && !answer.recursion_available);
}

#[test]
fn the_second_nearest_is_answered_when_the_nearest_is_gone_or_leaves() {
    let a = question("s3.example.org.", RecordType::A);
    let gone = cluster().split_off(1);
    assert_eq!(short(&ask_among(gone, &a, CLIENT)), ["10.1.2.1"]);
    let mut leaving = cluster();
    leaving[0].state = MemberState::Draining;
    assert_eq!(short(&ask_among(leaving, &a, CLIENT)), ["10.1.2.1"]);
}

#[test]
fn services_are_tried_nearest_first_and_their_addresses_come_along() {
    for name in ["s3.example.org.", "_s3._tcp.s3.example.org."] {
        let answer = ask(&question(name, RecordType::SRV));
        let targets: Vec<_> = answer
            .answers
            .iter()
            .map(|record| match &record.data {
                RData::SRV(service) => (service.priority, service.port, service.target.to_string()),
                other => panic!("{other}"),
            })
            .collect();
        let [first, second, third, fourth] = targets.try_into().unwrap();
        let nearest = [&first, &second].map(|(_, _, target)| target.as_str());
        assert!(
            nearest.contains(&"a1.s3.example.org.") && nearest.contains(&"v6.s3.example.org."),
            "{nearest:?}"
        );
        assert_eq!(third, (2, 9000, "a2.s3.example.org.".into()));
        assert_eq!(fourth, (3, 9001, "b1.s3.example.org.".into()));
        let mut beside: Vec<_> = answer
            .additionals
            .iter()
            .map(|record| format!("{} {}", record.name, record.data))
            .collect();
        beside.sort();
        let expected = [
            "a1.s3.example.org. 10.1.1.1",
            "a2.s3.example.org. 10.1.2.1",
            "b1.s3.example.org. 10.2.0.1",
            "v6.s3.example.org. fd00::1",
        ];
        assert_eq!(beside, expected);
    }
}

#[test]
fn a_living_nodes_name_has_its_address_and_a_dead_ones_none() {
    let of = |name, kind| ask(&question(name, kind));
    assert_eq!(short(&of("A1.s3.example.org.", RecordType::A)), ["10.1.1.1"]);
    assert_eq!(short(&of("v6.s3.example.org.", RecordType::AAAA)), ["fd00::1"]);
    let dead = of("a9.s3.example.org.", RecordType::A);
    assert_eq!(dead.metadata.response_code, ResponseCode::NXDomain);
}

#[test]
fn negative_answers_have_the_form_that_caches_understand() {
    use ResponseCode::{NXDomain, NoError, Refused};
    let cases = [
        ("s3.example.org.", RecordType::MX, NoError),
        ("s3.example.org.", RecordType::NS, NoError),
        ("v6.s3.example.org.", RecordType::A, NoError),
        ("a1.s3.example.org.", RecordType::TXT, NoError),
        ("_s3._tcp.s3.example.org.", RecordType::A, NoError),
        ("_tcp.s3.example.org.", RecordType::SRV, NoError),
        ("nobody.s3.example.org.", RecordType::A, NXDomain),
        ("x.a1.s3.example.org.", RecordType::A, NXDomain),
        ("example.org.", RecordType::A, Refused),
        ("s3.example.com.", RecordType::A, Refused),
        (".", RecordType::NS, Refused),
    ];
    for (name, kind, code) in cases {
        let answer = ask(&question(name, kind));
        assert_eq!(answer.metadata.response_code, code, "{name} {kind}");
        assert_eq!(short(&answer), [""; 0]);
        let ours = code != Refused;
        assert_eq!(answer.metadata.authoritative, ours);
        let authorities: Vec<_> = answer
            .authorities
            .iter()
            .map(|record| (record.record_type(), record.ttl))
            .collect();
        let expected: &[_] = if ours { &[(RecordType::SOA, 5)] } else { &[] };
        assert_eq!(authorities, expected, "{name} {kind}");
    }
}

#[test]
fn a_name_above_a_nodes_name_exists_without_records() {
    let dotted = vec![member("r1.a", "dc1/a/r1", "10.1.1.1:9000")];
    let of = |name| ask_among(dotted.clone(), &question(name, RecordType::A), CLIENT);
    assert_eq!(short(&of("r1.a.s3.example.org.")), ["10.1.1.1"]);
    assert_eq!(
        of("a.s3.example.org.").metadata.response_code,
        ResponseCode::NoError
    );
    assert_eq!(
        of("1.a.s3.example.org.").metadata.response_code,
        ResponseCode::NXDomain
    );
}

#[test]
fn buckets_in_front_of_the_name_lead_to_the_nearest_nodes_where_they_should() {
    let buckets = Lookup {
        buckets: true,
        ..config()
    };
    let responder = Responder::new(&buckets, "s3.example.org").unwrap();
    let ask = |name, kind| {
        let bytes = question(name, kind).to_vec().unwrap();
        let answer = responder.answer(&bytes, CLIENT.into(), Transport::Udp, &live(cluster()));
        Message::from_vec(&answer.unwrap().bytes).unwrap()
    };
    for (name, kind, expected) in [
        ("demo.s3.example.org.", RecordType::A, "10.1.1.1"),
        ("with.dots.s3.example.org.", RecordType::AAAA, "fd00::1"),
        ("b1.s3.example.org.", RecordType::A, "10.2.0.1"),
    ] {
        assert_eq!(short(&ask(name, kind)), [expected], "{name}");
    }
    let text = ask("demo.s3.example.org.", RecordType::TXT);
    assert_eq!(
        (text.metadata.response_code, text.answers.len()),
        (ResponseCode::NoError, 0)
    );
}

#[test]
fn while_no_living_node_is_known_another_server_should_be_asked() {
    let mut nowhere = cluster().remove(0);
    (nowhere.s3, nowhere.admin) = ("0.0.0.0:9000".parse().unwrap(), "0.0.0.0:9100".parse().unwrap());
    for members in [vec![], vec![nowhere]] {
        for (name, kind) in [
            ("s3.example.org.", RecordType::A),
            ("s3.example.org.", RecordType::SOA),
            ("a1.s3.example.org.", RecordType::A),
        ] {
            let answer = ask_among(members.clone(), &question(name, kind), CLIENT);
            assert_eq!(
                answer.metadata.response_code,
                ResponseCode::ServFail,
                "{name} {kind}"
            );
        }
    }
    let outside = ask_among(vec![], &question("example.org.", RecordType::A), CLIENT);
    assert_eq!(outside.metadata.response_code, ResponseCode::Refused);
}

#[test]
fn a_monitor_finds_the_start_of_authority_and_any_is_no_amplifier() {
    let answer = ask(&question("s3.example.org.", RecordType::SOA));
    assert!(
        short(&answer)[0].starts_with("s3.example.org. hostmaster.s3.example.org."),
        "{answer}"
    );
    let any = ask(&question("s3.example.org.", RecordType::ANY));
    assert_eq!(any.answers[0].record_type(), RecordType::HINFO);
}

#[test]
fn only_one_question_of_our_class_and_kind_is_understood() {
    let code = |message: &Message| ask(message).metadata.response_code;
    let mut chaos = question("s3.example.org.", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(code(&chaos), ResponseCode::Refused);
    let mut two = question("s3.example.org.", RecordType::A);
    two.add_query(two.queries[0].clone());
    assert_eq!(code(&two), ResponseCode::FormErr);
    let none = Message::new(1, MessageType::Query, OpCode::Query);
    assert_eq!(code(&none), ResponseCode::FormErr);
    let update = Message::new(1, MessageType::Query, OpCode::Update);
    assert_eq!(code(&update), ResponseCode::NotImp);
    let mut future = question("s3.example.org.", RecordType::A);
    let mut edns = Edns::new();
    edns.set_version(1);
    future.set_edns(edns);
    assert_eq!(u16::from(code(&future)), u16::from(ResponseCode::BADVERS));
}

#[test]
fn a_trusted_resolver_asks_for_its_client_and_learns_the_scope_of_the_answer() {
    let a = question("s3.example.org.", RecordType::A);
    for (network, nearest, holds) in [
        ("10.1.2.0/24", "10.1.2.1", 24),
        ("10.1.2.7/32", "10.1.2.1", 32),
        ("10.2.0.0/16", "10.2.0.1", 16),
        ("10.2.3.0/24", "10.2.0.1", 24),
    ] {
        let answer = ask_among(cluster(), &for_clients_of(network, a.clone()), RESOLVER);
        assert_eq!(
            (short(&answer), scope(&answer)),
            (vec![nearest.to_string()], Some(holds)),
            "{network}"
        );
    }
    let wide = ask_among(cluster(), &for_clients_of("10.1.0.0/16", a.clone()), RESOLVER);
    assert_eq!(scope(&wide), Some(24), "racks of /24 lie in it: ask for each");
    let option = wide.edns.unwrap().option(EdnsCode::Subnet).cloned();
    let expected = ClientSubnet::new("10.1.0.0".parse().unwrap(), 16, 24);
    assert_eq!(option, Some(EdnsOption::Subnet(expected)));
}

#[test]
fn anyone_else_is_answered_for_itself_and_the_answer_holds_for_all_its_clients() {
    let a = question("s3.example.org.", RecordType::A);
    let pretender = ask(&for_clients_of("10.2.0.0/16", a.clone()));
    assert_eq!(
        (short(&pretender), scope(&pretender)),
        (vec!["10.1.1.1".into()], Some(0))
    );
    let private = ask_among(cluster(), &for_clients_of("0.0.0.0/0", a.clone()), RESOLVER);
    assert_eq!(scope(&private), Some(0));
    assert_eq!(
        scope(&ask(&a)),
        None,
        "who does not ask about networks is told nothing"
    );
    let nobody = question("nobody.s3.example.org.", RecordType::A);
    let nobody = ask_among(cluster(), &for_clients_of("10.2.0.0/16", nobody), RESOLVER);
    assert_eq!(scope(&nobody), Some(0), "nobody is nobody for everyone");
    let v6 = question("s3.example.org.", RecordType::AAAA);
    let without_v6 = cluster()[..3].to_vec();
    let none = ask_among(without_v6, &for_clients_of("10.2.0.0/16", v6), RESOLVER);
    assert_eq!(scope(&none), Some(0), "and there is no address for anyone");
}

#[test]
fn a_client_subnet_that_the_standard_forbids_is_a_format_error() {
    let mut beyond = question("s3.example.org.", RecordType::A);
    let mut edns = Edns::new();
    let subnet = ClientSubnet::new("10.1.2.3".parse().unwrap(), 30, 0);
    edns.options_mut().insert(EdnsOption::Subnet(subnet));
    beyond.set_edns(edns);
    assert_eq!(ask(&beyond).metadata.response_code, ResponseCode::FormErr);
}

/// Many nodes of one rack, all of them in the answer.
fn crowd(answers: usize) -> (Responder, Vec<Arc<LiveNode>>) {
    let crowd = (0..60).map(|index| {
        let name = format!("{index:0>60}");
        member(&name, "dc1/a/r1", &format!("10.1.1.{}:9000", index + 1))
    });
    let config = Lookup { answers, ..config() };
    (
        Responder::new(&config, "s3.example.org").unwrap(),
        live(crowd.collect()),
    )
}

#[test]
fn an_answer_too_large_for_a_datagram_is_asked_again_on_a_connection() {
    let (responder, live) = crowd(60);
    let ask = |question: &Message, transport| {
        let bytes = question.to_vec().unwrap();
        let answer = responder.answer(&bytes, CLIENT.into(), transport, &live);
        let answer = answer.unwrap().bytes;
        (answer.len(), Message::from_vec(&answer).unwrap())
    };
    let plain = question("s3.example.org.", RecordType::A);
    let mut roomy = plain.clone();
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    roomy.set_edns(edns);

    let (bytes, answer) = ask(&plain, Transport::Udp);
    assert!(bytes <= 512 && answer.metadata.truncation && answer.answers.is_empty());
    let (bytes, answer) = ask(&roomy, Transport::Udp);
    assert!(bytes > 512 && bytes <= 1232 && !answer.metadata.truncation);
    assert_eq!(answer.answers.len(), 60);
    let (_, answer) = ask(&plain, Transport::Tcp);
    assert_eq!((answer.metadata.truncation, answer.answers.len()), (false, 60));
}

#[test]
fn addresses_beside_services_are_left_out_before_the_answer_is() {
    let (responder, live) = crowd(1);
    let ask = |room_bytes, transport| {
        let mut question = question("s3.example.org.", RecordType::SRV);
        let mut edns = Edns::new();
        edns.set_max_payload(room_bytes);
        question.set_edns(edns);
        let bytes = question.to_vec().unwrap();
        let answer = responder.answer(&bytes, CLIENT.into(), transport, &live);
        answer.unwrap().bytes
    };
    let whole = ask(1232, Transport::Tcp);
    let room_bytes = whole.len() as u16 - 1;
    assert!((512..1232).contains(&room_bytes));
    let answer = ask(room_bytes, Transport::Udp);
    assert!(answer.len() <= usize::from(room_bytes));
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!((answer.metadata.truncation, answer.answers.len()), (false, 8));
    assert!(answer.additionals.is_empty() && answer.edns.is_some());
}

/// Well-formed questions, some of them with an option and some with another opcode.
fn questions() -> impl Strategy<Value = Vec<u8>> {
    let names = prop_oneof![
        Just("s3.example.org."),
        Just("_s3._tcp.s3.example.org."),
        Just("a1.s3.example.org."),
        Just("elsewhere.example."),
    ];
    (names, any::<u16>(), 0..8_u8, 0..=32_u8).prop_map(|(name, kind, opcode, prefix)| {
        let mut question = question(name, RecordType::from(kind % 64));
        question.metadata.op_code = OpCode::from_u8(opcode / 2);
        let question = for_clients_of(&format!("10.1.2.3/{prefix}"), question);
        question.to_vec().unwrap()
    })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 512, ..Default::default() })]

    #[test]
    fn any_bytes_are_answered_in_bounds_or_not_at_all(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        check_bounds(&bytes)?;
    }

    #[test]
    fn a_question_with_some_bytes_changed_is_answered_in_bounds_or_not_at_all(
        bytes in questions(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = bytes;
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        check_bounds(&bytes)?;
    }
}

/// Checks the properties of every message: an answer has the question's number, says that it is one, fits,
/// and can be read; responses and fragments of a header get no answer.
fn check_bounds(bytes: &[u8]) -> Result<(), proptest::test_runner::TestCaseError> {
    let responder = Responder::new(&config(), "s3.example.org").unwrap();
    let answer = responder.answer(bytes, RESOLVER.into(), Transport::Udp, &live(cluster()));
    let is_question = bytes.len() >= 12 && bytes[2] & 0x80 == 0;
    prop_assert_eq!(answer.is_some(), is_question);
    if let Some(Reply { bytes: answer, code }) = answer {
        prop_assert!(answer.len() <= 1232);
        prop_assert_eq!(&answer[..2], &bytes[..2]);
        prop_assert!(answer[2] & 0x80 != 0);
        prop_assert!(Message::from_vec(&answer).is_ok());
        prop_assert_eq!(answer[3] & 0x0f, code.low());
    }
    Ok(())
}
