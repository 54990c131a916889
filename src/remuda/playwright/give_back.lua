-- Ends a connection, once, and has its worker restart if that is due.
-- ARGV[1] worker
-- ARGV[2] connection
-- ARGV[3] concurrent, MAX_CONCURRENT_SESSIONS
-- ARGV[4] lifetime, MAX_LIFETIME_SESSIONS
-- ARGV[5] percent of the workers that may be out at the same time
-- ARGV[6] seconds for which the shutdown command stays
-- ARGV[7] outcome, `failed` if the worker did not answer, `served` if it did; else nobody knows
-- ARGV[8] suspected, seconds for which a worker is not chosen after it has failed; doubled with each time in a row
-- ARGV[9] doublings, at most
-- returns 1 if the connection was still counted, else 0

places = tonumber(ARGV[3])
local worker, outcome = ARGV[1], ARGV[7]
local is_suspect = is_in(SUSPECTS, worker)
if outcome == 'failed' and call('ZSCORE', WORKERS, worker) then
  -- Several clients that tried it at the same time tell of one failure.
  if not is_suspect then
    local before = call('HINCRBY', FAILURES, worker, 1) - 1
    call('ZADD', SUSPECTS, now + ARGV[8] * 2 ^ math.min(before, ARGV[9]), worker)
  end
  tally('failed', 1)
elseif outcome == 'served' and not is_suspect then
  -- One that ends while its worker is suspected began before that, and proves nothing.
  call('HDEL', FAILURES, worker)
end
local was_open = remove(worker, ARGV[2])
restart_if_due(worker, tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]))
if was_open then ring() end
return was_open and 1 or 0
