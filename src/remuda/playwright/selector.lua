-- Gives a connection a place at a worker: the one with the highest lifetime that is not near its limit yet, so that
-- workers reach the limit one after the other.
-- ARGV[1] browser
-- ARGV[2] concurrent, MAX_CONCURRENT_SESSIONS
-- ARGV[3] lifetime, MAX_LIFETIME_SESSIONS
-- ARGV[4] now, the current timestamp: when the connection began
-- ARGV[5] connection
-- ARGV[6] version of the client; empty if it does not tell, then any worker will do
-- ARGV[7] lease, in seconds
-- ARGV[8] waited, seconds since the client came
-- ARGV[9] bucket of that wait
-- ARGV[10] origin of the client, as JSON
-- ARGV[11] among, versions of workers, with spaces between: the client may have none of the others; empty for all
-- ARGV[12] unsuited, how many of the excluded have refused this version; they come first
-- ARGV[13..] excluded, workers that are known not to do for this client
-- returns the worker's endpoint and the worker; or nil, the number of live workers, how many of them may do for the
-- client once they have a free place, and the versions on offer

places = tonumber(ARGV[2])
local limit, version, unsuited = tonumber(ARGV[3]), ARGV[6], tonumber(ARGV[12])
local excluded = {}
for index = 13, #ARGV do
  excluded[ARGV[index]] = true
end

-- How many who are suspected a pick looks at: its cost must not grow with their number.
local MOST_SUSPECTS = 10

-- Versions in the order in which they are tried: a worker that does not tell its own may refuse the client, so it comes
-- after those that speak it for certain.
local suited = version == '' and {call('ZRANGE', OFFERS, 0, -1)} or {{version}, {'any'}}
local tiers, is_suited, is_allowed = {}, {}, {}
for _, versions in ipairs(suited) do
  local tier = {}
  for _, each in ipairs(versions) do
    is_suited[each] = true
    if ARGV[11] == '' or string.find(' ' .. ARGV[11] .. ' ', ' ' .. each .. ' ', 1, true) then
      is_allowed[each] = true
      table.insert(tier, each)
    end
  end
  table.insert(tiers, tier)
end

-- Who is dead, full or draining falls out of the index when it is met here, so each is met once.
local function best_of(index, ceiling)
  local skipped = 0
  while true do
    local found = call('ZRANGE', index, ceiling, '-inf', 'BYSCORE', 'REV', 'LIMIT', skipped, 1, 'WITHSCORES')
    local worker, score = found[1], tonumber(found[2])
    if not worker then return nil end
    if excluded[worker] then
      skipped = skipped + 1
    else
      local index_now, score_now = file(worker)
      if index_now == index and score_now == score then return worker, score end
      if index_now ~= index then call('ZREM', index, worker) end
    end
  end
end

local function best_up_to(versions, ceiling)
  local best, highest = nil, -math.huge
  for _, each in ipairs(versions) do
    local worker, score = best_of(string.format(KEYS[17], each), ceiling)
    if worker and score > highest then best, highest = worker, score end
  end
  return best
end

-- How many live workers may do for the client, also those that are full. Looks at all of them, and so only for the
-- few clients that a worker has refused.
local function count_suited()
  local refused, count = {}, 0
  for index = 13, 12 + unsuited do
    refused[ARGV[index]] = true
  end
  for _, worker in ipairs(call('ZRANGE', WORKERS, now, '+inf', 'BYSCORE')) do
    if not refused[worker] and is_suited[call('HGET', VERSIONS, worker)] then count = count + 1 end
  end
  return count
end

-- Lets one that is suspected prove itself, whose pause is over, first of all who will be trusted again soonest.
local function forgive_one()
  for _, worker in ipairs(call('ZRANGE', SUSPECTS, now, '+inf', 'BYSCORE', 'LIMIT', 0, MOST_SUSPECTS)) do
    local failures = tonumber(call('HGET', FAILURES, worker) or 1)
    local trusted_at = call('ZSCORE', SUSPECTS, worker)
    local failed_at = trusted_at - suspicion_after(failures)
    if is_allowed[call('HGET', VERSIONS, worker)] and not excluded[worker] and now >= failed_at + pause_after(failures) then
      call('ZREM', SUSPECTS, worker)
      if file(worker) then return true end
      call('ZADD', SUSPECTS, trusted_at, worker)
    end
  end
  return false
end

local total = call('ZCOUNT', WORKERS, now, '+inf')
local margin = math.max(1, math.floor(limit / math.max(1, total)))
local function best()
  for _, versions in ipairs(tiers) do
    local worker = best_up_to(versions, limit - margin - 1) or best_up_to(versions, limit - 1)
    if worker then return worker end
  end
  -- The last resort goes beyond the document: who is at the limit but may not restart yet still serves.
  for _, versions in ipairs(tiers) do
    local worker = best_up_to(versions, '+inf')
    if worker then return worker end
  end
  return nil
end
local worker = best() or forgive_one() and best()
if not worker then
  return {false, total, unsuited > 0 and count_suited() or total, unpack(call('ZRANGE', OFFERS, now, '+inf', 'BYSCORE'))}
end
call('HINCRBY', LIFETIME, field(worker), 1)
add(worker, ARGV[5], ARGV[4], tonumber(ARGV[7]), ARGV[10])
tally('picks', 1)
call('HINCRBY', WAITS, ARGV[9], 1)
call('HINCRBYFLOAT', WAITS, 'sum', ARGV[8])
return {endpoint_of(worker), worker}
