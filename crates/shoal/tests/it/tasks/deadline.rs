//! Stories about tasks that should be over by a time.

use std::time::Duration;

use serde_json::{Value, json};
use shoal_net::clock;
use shoal_orders::Moment;

use super::{begin, is_over, manifest, order, put_objects, until};
use crate::lake::{ACCESS_KEY, Request};
use crate::node::Node;

/// Which requests the lake holds.
type Held = fn(&Request) -> bool;

fn after(duration: Duration) -> String {
    Moment::from(clock::utc_now() + duration).to_string()
}

/// Begins to bring what is below `p/` by a time: all of it, or these objects.
async fn begin_by(node: &Node, deadline: &str, list: Option<&str>) -> String {
    let Some(list) = list else {
        let mut order = order("prefetch", "s3://b/p/");
        order["deadline"] = json!(deadline);
        return begin(node, &order).await;
    };
    let query = format!("kind=prefetch&identity={ACCESS_KEY}&deadline={deadline}");
    let reply = manifest::send(node, &query, list.to_owned()).await;
    let task: Value = serde_json::from_slice(&reply.body).unwrap();
    task["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_short_task_takes_most_of_the_time_until_its_deadline() {
    for list in [None, Some("s3://b/p/0\ns3://b/p/1\ns3://b/p/2\ns3://b/p/3\n")] {
        let node = Node::start_immutable().await;
        put_objects(&node, (0..4).map(|number| format!("p/{number}")));
        let begun = clock::instant();
        let id = begin_by(&node, &after(Duration::from_secs(3)), list).await;
        let task = until(&node, &id, is_over).await;
        assert_eq!(task["state"], "done", "{task:#}");
        assert!(
            begun.elapsed().as_millis() > 1_500,
            "the last block waits for its turn: {list:?}"
        );
        node.stop().await;
    }
}

#[tokio::test]
async fn a_task_that_is_not_over_by_its_deadline_is_at_risk_whatever_is_known_of_it() {
    let is_listing = |request: &Request| request.parameter("list-type").is_some();
    let held: [(Held, _); 3] = [
        (is_listing, None),
        (Request::is_get, None),
        (Request::is_head, Some("s3://b/p/a")),
    ];
    for (held, list) in held {
        let node = Node::start_immutable().await;
        put_objects(&node, ["p/a".into()]);
        let gate = node.lake.hold(held);
        let id = begin_by(&node, &after(Duration::from_secs(1)), list).await;
        until(&node, &id, |task| task["at_risk"] == true).await;
        let metrics = node.admin("/metrics").await;
        assert!(
            metrics.text().contains("shoal_tasks_at_risk 1"),
            "{}",
            metrics.text()
        );
        gate.open();
        let task = until(&node, &id, is_over).await;
        assert_eq!(
            (&task["state"], &task["at_risk"]),
            (&"done".into(), &false.into()),
            "{task:#}"
        );
        node.stop().await;
    }
}
