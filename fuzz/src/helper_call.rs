//! What a confined process asks of the helper that changes the host, and its answers: what is understood is the same
//! after it was written and read again, and what passes the helper's check fits a message.

/// A message.
pub fn run(data: &[u8]) {
    host::fuzzing::helper_call(data);
}

/// One of each kind of call, some answers, and what is neither.
pub fn seeds() -> Vec<Vec<u8>> {
    let requests = [
        r#"{"open_device":{"name":"tun0","queues":2,"offloads":true,"takes_own":false,"queue_packets":1024}}"#,
        r#"{"set_mtu":1280}"#,
        r#"{"set_addresses":["10.86.0.2/32","fd00::2/128"]}"#,
        r#"{"add_routes":["10.0.0.0/8","2001:db8::/32"]}"#,
        r#"{"remove_routes":["127.0.0.0/8"]}"#,
        r#""start_default_route""#,
        r#"{"set_default_route":{"into_tun":["0.0.0.0/0","::/0"],"exceptions":["192.0.2.1/32"]}}"#,
        r#"{"set_exception_route":{"server":"192.0.2.1","index":2,"gateway":"fe80::1","source":null}}"#,
        r#"{"start_forwarding":{"v4":true,"v6":false}}"#,
        r#"{"start_nat":["10.86.0.0/24"]}"#,
        r#"{"start_kill_switch":{"exceptions":[{"prefix":"10.0.0.0/8","reason":"lan"}],"is_kept":true}}"#,
        r#"{"set_kill_switch":{"exceptions":[],"was_through":true}}"#,
        r#"{"end_kill_switch":{"as_asked":true}}"#,
        r#"{"set_name_servers":{"servers":["9.9.9.9","2001:db8::53"],"all_names":true}}"#,
        r#""unset_name_servers""#,
        r#""look_at_name_servers""#,
        r#""undo""#,
    ];
    let calls = requests
        .iter()
        .map(|request| format!(r#"{{"change":{request}}}"#));
    let others = [
        r#""serve_too""#,
        r#"{"set_option":"mark"}"#,
        r#"{"set_option":{"interface":"eth0"}}"#,
        r#"{"set_option":{"receive_buffer":8388608}}"#,
        r#"{"device":{"name":"tun0","index":7}}"#,
        r#"{"refused":{"destinations":["10.0.0.0/8"],"reasons":["cannot add a route"]}}"#,
        r#"{"failed":{"kind":"permission","text":"cannot set the MTU"}}"#,
        r#"{"name_servers_set":["resolved","file"]}"#,
        r#"{"option_refused":1}"#,
        "[]",
    ];
    let all = requests.iter().chain(&others).map(|text| (*text).to_owned());
    all.chain(calls).map(String::into_bytes).collect()
}
