-- Forgets a session that has ended, or what is left of one that never was: all of it or nothing. Refuses
-- while a process may still write about it: its manager, its node, or the one that frees its slot.
-- KEYS[1] session:{session}:heartbeat.node
-- KEYS[2] session:{session}:heartbeat.manager
-- KEYS[3] session:{session}:slot
-- KEYS[4] session:{session}:orchestrator
-- KEYS[5] session:{session}:log
-- KEYS[6] session:{session}:status
-- KEYS[7] session:{session}:capabilities
-- KEYS[8] session:{session}:metadata
-- KEYS[9] session:{session}:storage
-- KEYS[10] session:{session}:telemetry.creation
-- KEYS[11] session:{session}:upstream
-- KEYS[12] session:{session}:downstream
-- KEYS[13] remuda:session:{session}:requested.short
-- KEYS[14] remuda:session:{session}:origin
-- KEYS[15] remuda:session:{session}:scheme
-- KEYS[16] sessions.active
-- KEYS[17] sessions.terminated
-- ARGV[1] session
-- ARGV[2] terminatedAt by which it was judged; '' when it has no state at all
-- ARGV[3] slots, template by orchestrator
-- ARGV[4] sessions, template by account
-- returns 1 if it is gone, else 0

if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  return 0
end
local slot = redis.call('GET', KEYS[3])
local owner = slot and slot:match('^(.*)/')
-- A slot that no orchestrator has any more will not be freed.
if owner and redis.call('SISMEMBER', string.format(ARGV[3], owner), slot) == 1 then
  return 0
end
local queued, pending, alive, terminated =
  unpack(redis.call('HMGET', KEYS[6], 'queuedAt', 'pendingAt', 'aliveAt', 'terminatedAt'))
if (terminated or '') ~= ARGV[2] then
  return 0
end
if not terminated and (queued or pending or alive) then
  return 0
end
local account = redis.call('HGET', KEYS[14], 'account')
if account and account ~= '' then
  redis.call('SREM', string.format(ARGV[4], account), ARGV[1])
end
-- Not DEL: a long log is freed in the background.
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9],
  KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15])
redis.call('SREM', KEYS[16], ARGV[1])
redis.call('SREM', KEYS[17], ARGV[1])
return 1
