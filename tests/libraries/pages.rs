//! Pages of `hydrant replay --html` in a browser.

use std::fs;

use hydrant_tests::peers::{CHROMIUM, Peer};
use hydrant_tests::{Folder, Job};

/// Selects one span after the other by keys, and collects what the page shows of each.
const WALK: &str = "<script>
const chart = document.getElementById('chart');
const press = (key) => chart.dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }));
const seen = [];
for (let step = 0; step < 40; step++) {
  press('ArrowRight');
  const shown = ['detail-title', 'detail-text', 'detail-table'].map((id) => document.getElementById(id).textContent);
  if (seen.at(-1) !== shown.join('|')) seen.push(shown.join('|'));
}
['s', '+', ']', '0', 'Enter'].forEach(press);
seen.push(document.activeElement.id);
document.body.replaceChildren(...seen.map((text) => Object.assign(document.createElement('p'), { textContent: text })));
</script></body>";

/// Records a job, makes its page, and returns the page as the browser has it after the scripts.
fn shown(folder: &Folder, job: Job, script: &str) -> String {
    let (file, page) = (folder.path("job.rec"), folder.path("job.html"));
    job.run().code(0);
    Job::command("replay --html").arg(&page).arg(&file).run().code(0).quiet().stdout_is("");
    let text = folder.read("job.html").replace("</body>", script);
    fs::write(&page, text).expect("the folder can be written");
    let browser =
        Job::new(CHROMIUM).words("--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-breakpad");
    let browser =
        browser.words("--disable-background-networking --no-first-run --virtual-time-budget=5000 --dump-dom");
    let browser = browser.arg(format!("--user-data-dir={}", folder.path("profile")));
    // The browser finds no session bus, and says so on standard error.
    let outcome = browser.arg(format!("file://{page}")).run();
    outcome.code(0);
    outcome.stdout
}

fn recorded(folder: &Folder, args: &str) -> Job {
    Job::command("run --record").arg(folder.path("job.rec")).words(args)
}

#[test]
fn a_page_draws_the_spans_of_a_job_of_mpich() {
    if !Peer::Chromium.there() || !Peer::Mpich5.there() {
        return;
    }
    let folder = Folder::new("page");
    let job = recorded(&folder, "-n 16").arg(Peer::Mpich5.program("mpi_allreduce"));
    let page = shown(&folder, job, "</body>");
    // Attributes that the script sets at its end.
    assert!(page.contains(r#"data-ranks="16""#), "{page}");
    let spans =
        page.split_once("data-spans=\"").and_then(|(_, rest)| rest.split_once('"')).map(|(spans, _)| spans);
    // Each rank has launch, start, init, fence and finalize at least.
    assert!(spans.is_some_and(|spans| spans.parse::<u32>().is_ok_and(|spans| spans >= 16 * 5)), "{spans:?}");
    for text in
        ["16 ranks on 1 host, PMI-1", ">fence 1<", ">slowest ranks<", ">finalize<", "in whole milliseconds"]
    {
        assert!(page.contains(text), "{text} is not in {page}");
    }
}

/// Keys and values of a client that would end the page's data, or begin a script.
#[test]
fn a_page_shows_texts_of_clients_as_text() {
    if !Peer::Chromium.there() {
        return;
    }
    let folder = Folder::new("texts");
    let steps = "init1\nsend cmd=put kvsname=%j key=</script><script>document.title='key'</script> value=</script><img/src=x/onerror=alert(1)>\\n\n\
                 expect cmd=put_result rc=0\nfence1\nend1";
    let job = recorded(&folder, "-n 1").arg(env!("CARGO_BIN_EXE_pmi-raw")).steps(steps);
    let page = shown(&folder, job, WALK);
    assert!(page.contains("<title>job.rec - timeline</title>"), "{page}");
    assert!(!page.contains("<img") && page.matches("<script").count() == 0, "{page}");
    for text in [
        "<p>rank 0: put|",
        "key=&lt;/script&gt;&lt;script&gt;document.title=\\'key\\'&lt;/script&gt; value=&lt;/script&gt;&lt;img/src=x/onerror=alert(1)&gt;\\n",
        "<p>rank 0: fence 1|",
        "<p>rank 0: finalize|",
        // The key Enter moves the focus to the messages.
        "<p>detail</p>",
    ] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
}
