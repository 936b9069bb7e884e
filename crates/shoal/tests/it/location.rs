//! Stories of the `Location` of a new object: it has the address that its writer used, not the lake's.

use http::StatusCode;

use crate::lake::Fault;
use crate::node::Node;

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

fn completed(host: &str) -> String {
    format!(
        "<CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Location>{host}/b/a%20k</Location><Bucket>b</Bucket><Key>a k</Key><ETag>&quot;e-1&quot;</ETag>\
         </CompleteMultipartUploadResult>"
    )
}

/// A fault that answers the next POST with this status and a body in these chunks.
fn sends(head: &str, chunks: &[&str]) -> Fault {
    let mut answer = format!("HTTP/1.1 {head}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n");
    for chunk in chunks {
        let length = format!("{:x}", chunk.len());
        answer.extend([&length, "\r\n", chunk, "\r\n"]);
    }
    Fault::raw(answer + "0\r\n\r\n").when(|request| request.method == http::Method::POST)
}

#[tokio::test]
async fn a_completed_object_is_where_its_writer_wrote_it() {
    let node = Node::start().await;
    let theirs = completed(&node.lake.url());
    let ours = completed(&format!("http://{}", node.address()));
    for mode in ["around", "through"] {
        for (chunks, expected) in [
            (vec![&*theirs], ours.clone()),
            (vec![DECLARATION, &theirs], format!("{DECLARATION}{ours}")),
            // A lake that thinks for long sends blanks meanwhile.
            (
                vec![DECLARATION, " ", "\n ", &theirs[..40], &theirs[40..]],
                format!("{DECLARATION} \n {ours}"),
            ),
            (
                vec!["<Error><Code>InternalError</Code></Error>"],
                "<Error><Code>InternalError</Code></Error>".to_owned(),
            ),
        ] {
            node.lake.misbehave(sends("200 OK", &chunks));
            let complete = node
                .client()
                .post("/b/a%20k?uploadId=u", "<CompleteMultipartUpload/>");
            let reply = complete.header("x-shoal-write", mode).send().await;
            assert_eq!(
                (reply.status, reply.text()),
                (StatusCode::OK, &*expected),
                "{mode}"
            );
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_file_from_a_form_is_where_the_form_was_sent() {
    let node = Node::start().await;
    let (lake, own) = (node.lake.url(), format!("http://{}", node.address()));
    let document =
        |host: &str| format!("<PostResponse><Location>{host}/b/k</Location><Key>k</Key></PostResponse>");
    for (status, location, expected) in [
        ("201 Created", format!("{lake}/b/k"), format!("{own}/b/k")),
        ("204 No Content", format!("{lake}/b/k"), format!("{own}/b/k")),
        (
            "303 See Other",
            "https://page.example/done".into(),
            "https://page.example/done".into(),
        ),
    ] {
        let has_document = status.starts_with("201");
        let theirs = document(&lake);
        let head = format!("{status}\r\nlocation: {location}");
        node.lake.misbehave(if has_document {
            sends(&head, &[&theirs])
        } else {
            let answer = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n");
            Fault::raw(answer).when(|request| request.method == http::Method::POST)
        });
        let form = node.client().post("/b", "--x\r\n…\r\n--x--");
        let reply = form
            .header("content-type", "multipart/form-data; boundary=x")
            .send()
            .await;
        let locations: Vec<_> = reply.headers.get_all("location").iter().collect();
        assert_eq!(locations, [&*expected], "{status}");
        if has_document {
            assert_eq!(reply.text(), document(&own));
        }
    }
    node.stop().await;
}
