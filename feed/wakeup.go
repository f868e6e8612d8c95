package feed

// WakeupSubject is the NATS subject of wake-ups; the payload is a partition's ID.
const WakeupSubject = "jetpull.feed.wakeup"

// wakeChannel is the channel of PostgreSQL's NOTIFY.
const wakeChannel = "jetpull_feed"
