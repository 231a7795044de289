//! C37: bytes that cannot be decoded fail once, as they came; they never block, loop or vanish.

use std::time::Duration;

use postroom::{Envelope, Received, TypeName};

use crate::harness::{Job, Log, builder, each, failed, idle, jobs, send};

#[test]
fn c37_bad_bytes_fail_as_they_came_and_hold_up_nobody() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add(job.n.to_string());
                Ok::<(), std::io::Error>(())
            }
        };
        let node = builder.transport(on.queue()).handle(jobs(), handler).start().await.unwrap();
        let bodies: [&[u8]; 6] = [b"", b"{\"n\":", b"{\"m\":1}", b"\xff\xfe\x00", b"[[[[[[", b"null"];
        let mut bad = Vec::new();
        for (index, body) in bodies.into_iter().enumerate() {
            let mut envelope = Envelope::new(body.to_vec());
            envelope.message_type = Some(TypeName::new(if index == 5 { "nobody.takes.this" } else { "job" }).unwrap());
            envelope.stamps.push("x-keep", vec![0xff, 0, b'"', index as u8]);
            bad.push((envelope, Duration::ZERO));
        }
        // No type at all, and a content type that nobody reads.
        bad.push((Envelope::new(&b"{\"n\":1}"[..]), Duration::ZERO));
        let mut odd = Envelope::new(&b"{\"n\":1}"[..]);
        odd.message_type = Some(TypeName::new("job").unwrap());
        odd.content_type = Some("application/x-nothing".into());
        bad.push((odd, Duration::ZERO));
        for answer in node.send_all("q", bad.clone()).await.unwrap() {
            answer.unwrap();
        }
        send(&node, 100..110).await;
        idle(&probe, &node).await;
        let mut handled = log.all();
        handled.sort();
        assert_eq!(handled, (100..110).map(|n| n.to_string()).collect::<Vec<_>>());
        let records = failed(&node).await;
        assert_eq!(records.len(), bad.len());
        for (sent, _) in &bad {
            let record = records.iter().find(|record| record.envelope().id == sent.id).unwrap();
            assert_eq!(record.envelope().body, sent.body);
            for (name, value) in sent.stamps.iter() {
                assert_eq!(record.envelope().stamps.get(name), Some(value), "{name}");
            }
            let reason = record.failure().unwrap().reason.as_str();
            let unhandled = sent.message_type.as_deref() != Some("job");
            assert_eq!(reason, if unhandled { "unhandled" } else { "undecodable" });
            assert_eq!(record.envelope().attempts(), 0, "decode errors are final");
        }
        node.stop().await;
    });
}
