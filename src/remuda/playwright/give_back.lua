-- Ends a connection, once, and has its worker restart if that is due.
-- ARGV[1] worker
-- ARGV[2] connection
-- ARGV[3] concurrent, MAX_CONCURRENT_SESSIONS
-- ARGV[4] lifetime, MAX_LIFETIME_SESSIONS
-- ARGV[5] percent of the workers that may be out at the same time
-- ARGV[6] seconds for which the shutdown command stays
-- ARGV[7] suspected, seconds for which the worker is not chosen again; 0 if it has answered
-- returns 1 if the connection was still counted, else 0

places = tonumber(ARGV[3])
local worker, suspected = ARGV[1], tonumber(ARGV[7])
if suspected > 0 and call('ZSCORE', WORKERS, worker) then
  call('ZADD', SUSPECTS, now + suspected, worker)
  tally('failed', 1)
end
local was_open = remove(worker, ARGV[2])
restart_if_due(worker, tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]))
if was_open then ring() end
return was_open and 1 or 0
